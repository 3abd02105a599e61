"""Who may do what: one table, and one function that every service asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from trainshed.model.errors import NotAllowed, NotFound

__all__ = [
    "ACTIONS",
    "ADMIN",
    "ROLES",
    "SCOPES",
    "Role",
    "Rule",
    "Subject",
    "has_scope",
    "may",
    "require",
]

Role = Literal["viewer", "developer", "manager"]
# Each role may do all that the ones before it may.
ROLES: tuple[Role, ...] = ("viewer", "developer", "manager")
ADMIN = "admin"


@dataclass(frozen=True)
class Rule:
    """What an action needs: a role for things of others, perhaps a lesser one for one's own, and a scope."""

    role: str
    scope: str
    own: str = ""


ACTIONS: dict[str, Rule] = {
    "job.read": Rule("viewer", "jobs:read"),
    "job.submit": Rule("developer", "jobs:write"),
    "job.stop": Rule("manager", "jobs:write", own="developer"),
    "job.enter": Rule("manager", "jobs:write", own="developer"),
    "job.delete": Rule("manager", "jobs:write", own="developer"),
    "job.rerun": Rule("developer", "jobs:write"),
    "host_folder.use": Rule("developer", "jobs:write"),
    "metrics.write": Rule("developer", "metrics:write"),
    "bucket.read": Rule("viewer", "objects:read"),
    "bucket.write": Rule("developer", "objects:write"),
    "bucket.create": Rule("developer", "objects:write"),
    "bucket.delete": Rule("developer", "objects:write"),
    "node.read": Rule("viewer", "jobs:read"),
    "workspace.read": Rule("viewer", "workspace:read"),
    "member.manage": Rule("manager", "workspace:write"),
    "token.manage": Rule("manager", "account:write", own="viewer"),
    "key.manage": Rule("manager", "account:write", own="viewer"),
    "workspace.manage": Rule(ADMIN, "admin"),
    "user.read": Rule(ADMIN, "admin", own="viewer"),
    "user.manage": Rule(ADMIN, "admin"),
    "user.password": Rule(ADMIN, "account:write", own="viewer"),
    "platform.manage": Rule(ADMIN, "admin"),
}

# All scopes that a token can be given. `objects:*` stands for all that begin with `objects:`.
SCOPES: frozenset[str] = frozenset(
    {"*"}
    | {rule.scope for rule in ACTIONS.values()}
    | {rule.scope.partition(":")[0] + ":*" for rule in ACTIONS.values() if ":" in rule.scope}
)


class Subject(Protocol):
    """Who asks. (`identity.Caller` is one; a test may use its own.)"""

    @property
    def user_id(self) -> str: ...

    @property
    def is_admin(self) -> bool: ...

    @property
    def workspace_id(self) -> str: ...

    @property
    def role(self) -> str: ...

    @property
    def scopes(self) -> frozenset[str]: ...

    @property
    def job_id(self) -> str: ...


def may(caller: Subject, action: str, obj: Any = None) -> bool:
    """Whether the caller may do the action to the thing.

    A thing belongs to the workspace in its `workspace_id` and to the user in its `owner_id`, if it has them.
    Without a thing the question is about the caller's own workspace.
    """
    return _refusal(caller, action, obj) is None


def require(caller: Subject, action: str, obj: Any = None) -> None:
    """Refuse what the caller may not do. A thing of another workspace does not exist for the caller."""
    refusal = _refusal(caller, action, obj)
    if refusal is not None:
        raise refusal


def has_scope(scopes: frozenset[str], needed: str) -> bool:
    """Whether a token with these scopes may be used for the needed one."""
    return "*" in scopes or needed in scopes or needed.partition(":")[0] + ":*" in scopes


def _refusal(caller: Subject, action: str, obj: Any) -> NotFound | NotAllowed | None:
    rule = ACTIONS[action]
    # An administrator whose token is not made for it is an ordinary member.
    is_admin = caller.is_admin and not caller.job_id and has_scope(caller.scopes, "admin")
    workspace_id = getattr(obj, "workspace_id", caller.workspace_id)
    if not is_admin and workspace_id != caller.workspace_id:
        return NotFound("There is no such thing, or it belongs to another workspace.")
    if caller.job_id and action == "metrics.write" and getattr(obj, "id", caller.job_id) != caller.job_id:
        return NotAllowed("A job may write metrics for itself only.")
    if not has_scope(caller.scopes, rule.scope):
        return NotAllowed(
            f"The credential in use does not allow this: it lacks the scope '{rule.scope}'.",
            hint="Use a token with that scope; `trainshed token create` makes one.",
            code="scope_missing",
        )
    if is_admin:
        return None
    needed = rule.role
    if rule.own and obj is not None and getattr(obj, "owner_id", "") == caller.user_id:
        needed = rule.own
    if needed in ROLES and caller.role in ROLES and ROLES.index(caller.role) >= ROLES.index(needed):
        return None
    if needed == ADMIN:
        return NotAllowed("Only an administrator of the platform may do this.", hint="Ask an administrator.")
    return NotAllowed(
        f"This needs the role '{needed}' in the workspace; yours is '{caller.role or 'none'}'.",
        hint="Ask a manager of the workspace.",
        code="role_missing",
    )
