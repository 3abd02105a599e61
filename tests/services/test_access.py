"""Every action for every role: the table of permissions, spelled out a second time."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from trainshed.model.errors import NotAllowed, NotFound
from trainshed.services.access import ACTIONS, SCOPES, has_scope, may, require
from trainshed.services.identity import Caller

ALL = frozenset({"*"})


@dataclass(frozen=True)
class Thing:
    workspace_id: str = "mine"
    owner_id: str = "someone"
    id: str = "thing"


# What each role may do to a thing of another member of its workspace; v: viewer, d: developer, m: manager.
OTHERS = {
    "job.read": "vdm",
    "job.submit": "dm",
    "job.stop": "m",
    "job.enter": "m",
    "job.delete": "m",
    "job.rerun": "dm",
    "host_folder.use": "dm",
    "metrics.write": "dm",
    "bucket.read": "vdm",
    "bucket.write": "dm",
    "bucket.create": "dm",
    "bucket.delete": "dm",
    "node.read": "vdm",
    "workspace.read": "vdm",
    "member.manage": "m",
    "token.manage": "m",
    "key.manage": "m",
    "workspace.manage": "",
    "user.read": "",
    "user.manage": "",
    "user.password": "",
    "platform.manage": "",
}
# ... and to a thing of its own.
OWN = OTHERS | {
    "job.stop": "dm",
    "job.enter": "dm",
    "job.delete": "dm",
    "token.manage": "vdm",
    "key.manage": "vdm",
    "user.read": "vdm",
    "user.password": "vdm",
}


def caller(role: str, **changes: object) -> Caller:
    values: dict[str, object] = {
        "user_id": "me",
        "user_name": "me",
        "is_admin": False,
        "workspace_id": "mine",
        "role": role,
        "scopes": ALL,
    }
    return Caller(**(values | changes))  # type: ignore[arg-type]


def test_the_table_is_whole() -> None:
    assert set(OTHERS) == set(ACTIONS)


@pytest.mark.parametrize("role", ["viewer", "developer", "manager", "", "nonsense"])
@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_every_action_for_every_role(action: str, role: str) -> None:
    letter = role[:1] or "-"
    assert may(caller(role), action, Thing()) is (letter in OTHERS[action])
    assert may(caller(role), action, Thing(owner_id="me")) is (letter in OWN[action])
    assert may(caller(role), action) is (letter in OTHERS[action])


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_an_administrator_may_everything_everywhere(action: str) -> None:
    admin = caller("manager", is_admin=True)
    assert may(admin, action, Thing())
    assert may(admin, action, Thing(workspace_id="other"))


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_nobody_else_reaches_another_workspace(action: str) -> None:
    stranger = Thing(workspace_id="other", owner_id="me")
    for role in ("viewer", "developer", "manager"):
        assert not may(caller(role), action, stranger)
        # It is not refused, it does not exist.
        with pytest.raises(NotFound):
            require(caller(role), action, stranger)
    # An administrator whose token is not made for it is an ordinary member.
    narrow = caller("manager", is_admin=True, scopes=frozenset({"jobs:*", "objects:*"}))
    assert not may(narrow, action, stranger)


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_a_scope_limits_every_role(action: str) -> None:
    needed = ACTIONS[action].scope
    admin = caller("manager", is_admin=True, scopes=SCOPES - {"*", needed, needed.partition(":")[0] + ":*"})
    assert not may(admin, action, Thing(owner_id="me"))
    manager = caller("manager", scopes=frozenset({needed}))
    assert may(manager, action, Thing(owner_id="me")) is ("m" in OWN[action])
    if not may(manager, action):
        with pytest.raises(NotAllowed):
            require(manager, action)


def test_scopes() -> None:
    assert has_scope(frozenset({"objects:*"}), "objects:write")
    assert not has_scope(frozenset({"objects:*"}), "objects-secret:write")
    assert not has_scope(frozenset({"objects:read"}), "objects:write")
    assert not has_scope(frozenset(), "jobs:read")


def test_a_job_writes_metrics_for_itself_only() -> None:
    job = caller("developer", job_id="j1", scopes=frozenset({"objects:*", "metrics:write"}))
    assert may(job, "metrics.write", Thing(id="j1"))
    assert not may(job, "metrics.write", Thing(id="j2"))
    assert not may(job, "job.read", Thing(id="j1"))
    assert may(job, "bucket.write", Thing())
    # Even if the job's owner is an administrator.
    assert not may(caller("manager", job_id="j1", is_admin=True), "user.manage")


def test_refusals_say_what_is_missing() -> None:
    with pytest.raises(NotAllowed, match="developer") as refusal:
        require(caller("viewer"), "job.submit")
    assert refusal.value.code == "role_missing"
    with pytest.raises(NotAllowed, match="jobs:write") as refusal:
        require(caller("manager", scopes=frozenset({"jobs:read"})), "job.submit")
    assert refusal.value.code == "scope_missing"
    with pytest.raises(NotAllowed, match="administrator"):
        require(caller("manager"), "user.manage")
