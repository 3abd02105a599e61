"""Users, for administrators; and who the caller is."""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import Field

from trainshed.api.authentication import CallerOf, PlatformOf
from trainshed.api.native.models import Model, RequestModel
from trainshed.model.errors import InvalidInput
from trainshed.services import users, workspaces
from trainshed.services.users import UserView

__all__ = ["router"]

router = APIRouter(tags=["access"])


class Identity(Model):
    """Who sends this request."""

    user_id: str
    user_name: str
    is_admin: bool
    workspace_id: str
    workspace: str = Field(description="The workspace's name; empty if the credential may not read it.")
    role: str
    scopes: list[str]
    job_id: str = Field(description="The job whose own credential this is, or empty.")


class UserList(Model):
    """Users by name."""

    users: list[UserView]


class UserRequest(RequestModel):
    """A user to be made."""

    name: str
    password: str = Field(default="", description="Without one the user signs in by a login link.")
    is_admin: bool = False


class UserChange(RequestModel):
    """What to change of a user; what is left out stays."""

    is_admin: bool | None = None
    disabled: bool | None = Field(default=None, description="A disabled user's tokens and keys are gone.")


class PasswordChange(RequestModel):
    """A new password."""

    password: str
    current: str = Field(default="", description="The present one; needed for one's own.")


@router.get("/whoami", summary="Show who you are")
def whoami(platform: PlatformOf, caller: CallerOf) -> Identity:
    """The user, the workspace and the reach of the credential in use."""
    from trainshed.services.access import may

    name = workspaces.get_workspace(platform, caller).name if may(caller, "workspace.read") else ""
    return Identity(
        user_id=caller.user_id,
        user_name=caller.user_name,
        is_admin=caller.is_admin,
        workspace_id=caller.workspace_id,
        workspace=name,
        role=caller.role,
        scopes=sorted(caller.scopes),
        job_id=caller.job_id,
    )


@router.get("/users", summary="List users")
def list_users(platform: PlatformOf, caller: CallerOf) -> UserList:
    """All users of the platform, for administrators."""
    return UserList(users=users.list_users(platform, caller))


@router.post("/users", status_code=201, summary="Add a user")
def create_user(platform: PlatformOf, caller: CallerOf, body: UserRequest) -> UserView:
    """Add a user, for administrators."""
    return users.create_user(platform, caller, body.name, body.password, body.is_admin)


@router.patch("/users/{name}", summary="Change a user")
def change_user(platform: PlatformOf, caller: CallerOf, name: str, body: UserChange) -> UserView:
    """Make a user an administrator or not, shut a user out or let one in again."""
    if body.is_admin is None and body.disabled is None:
        raise InvalidInput("Nothing to change was given.", hint="Give is_admin or disabled.", where="body")
    view: UserView | None = None
    if body.is_admin is not None:
        view = users.set_admin(platform, caller, name, body.is_admin)
    if body.disabled is not None:
        change = users.disable_user if body.disabled else users.enable_user
        view = change(platform, caller, name)
    assert view is not None
    return view


@router.put("/users/{name}/password", status_code=204, summary="Set a password")
def set_password(platform: PlatformOf, caller: CallerOf, name: str, body: PasswordChange) -> Response:
    """Your own (with the present one), or anyone's if you are an administrator. Their sessions end."""
    users.set_password(platform, caller, name, body.password, body.current)
    return Response(status_code=204)
