"""The client's view of who there is and what the platform offers."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from trainshed.client.results import (
    Credentials,
    Engine,
    FlavorOffer,
    Identity,
    Member,
    NewToken,
    NodeOffer,
    Token,
    User,
    Workspace,
    read_result,
)
from trainshed.client.transport import Transport

__all__ = ["Directory"]


class Directory:
    """Flavors, engines and nodes; users, tokens and workspaces."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def flavors(self) -> list[FlavorOffer]:
        """What a node of a job can get."""
        return [read_result(FlavorOffer, item) for item in self._transport.get("/api/v1/flavors")["flavors"]]

    def engines(self) -> list[Engine]:
        """The preset environments."""
        return [read_result(Engine, item) for item in self._transport.get("/api/v1/engines")["engines"]]

    def nodes(self) -> list[NodeOffer]:
        """The machines that run jobs."""
        return [read_result(NodeOffer, item) for item in self._transport.get("/api/v1/nodes")["nodes"]]

    def whoami(self) -> Identity:
        """Who this client is for the platform."""
        return read_result(Identity, self._transport.get("/api/v1/whoami"))

    def credentials(self) -> Credentials:
        """Endpoints, project id, token and access keys, for tools that speak to the platform directly."""
        return read_result(Credentials, self._transport.call("POST", "/api/v1/credentials"))

    def tokens(self) -> list[Token]:
        """The caller's tokens, without their secret part."""
        return [read_result(Token, item) for item in self._transport.get("/api/v1/tokens")["tokens"]]

    def create_token(
        self, name: str, *, scopes: list[str] | None = None, days: int | None = None, workspace: str = ""
    ) -> NewToken:
        """Create a token; this answer is the only place where its text is shown."""
        body: dict[str, Any] = {"name": name}
        if scopes:
            body["scopes"] = scopes
        if days is not None:
            body["days"] = days
        if workspace:
            body["workspace"] = workspace
        return read_result(NewToken, self._transport.call("POST", "/api/v1/tokens", body))

    def revoke_token(self, token_id: str) -> None:
        """Make a token useless from now on."""
        self._transport.call("DELETE", f"/api/v1/tokens/{quote(token_id, safe='')}")

    def users(self) -> list[User]:
        """All users (administrators only)."""
        return [read_result(User, item) for item in self._transport.get("/api/v1/users")["users"]]

    def add_user(self, name: str, password: str, *, is_admin: bool = False) -> User:
        """Add a user (administrators only)."""
        body = {"name": name, "password": password, "is_admin": is_admin}
        return read_result(User, self._transport.call("POST", "/api/v1/users", body))

    def workspaces(self) -> list[Workspace]:
        """The workspaces that the caller can see."""
        return [
            read_result(Workspace, item) for item in self._transport.get("/api/v1/workspaces")["workspaces"]
        ]

    def add_workspace(self, name: str) -> Workspace:
        """Add a workspace (administrators only)."""
        return read_result(Workspace, self._transport.call("POST", "/api/v1/workspaces", {"name": name}))

    def members(self, workspace: str) -> list[Member]:
        """The members of a workspace and their roles."""
        path = f"/api/v1/workspaces/{quote(workspace, safe='')}/members"
        return [read_result(Member, item) for item in self._transport.get(path)["members"]]

    def set_member(self, workspace: str, user: str, role: str) -> Member:
        """Make a user a member of a workspace, or change the member's role."""
        path = f"/api/v1/workspaces/{quote(workspace, safe='')}/members/{quote(user, safe='')}"
        return read_result(Member, self._transport.call("PUT", path, {"role": role}))

    def remove_member(self, workspace: str, user: str) -> None:
        """Take a user out of a workspace."""
        path = f"/api/v1/workspaces/{quote(workspace, safe='')}/members/{quote(user, safe='')}"
        self._transport.call("DELETE", path)
