"""The client's view of who there is and what the platform offers."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from trainshed.client.connection import clean_url
from trainshed.client.results import (
    AccessKey,
    Credentials,
    Endpoints,
    Engine,
    FlavorOffer,
    Identity,
    KeyPair,
    Member,
    NewToken,
    NodeOffer,
    NotificationTarget,
    SshAccess,
    SshKey,
    Token,
    User,
    Workspace,
    read_result,
)
from trainshed.client.transport import Transport

__all__ = ["Directory", "sign_in"]


def sign_in(url: str, user: str, password: str, workspace: str = "", ca: str = "") -> str:
    """A token for a name and a password."""
    transport = Transport(clean_url(url), "", ca)
    try:
        body = {"user": user, "password": password, "workspace": workspace}
        return str(transport.call("POST", "/api/v1/login", body)["token"])
    finally:
        transport.close()


class Directory:
    """Flavors, engines and nodes; users, tokens and workspaces."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def flavors(self, pool: str = "") -> list[FlavorOffer]:
        """What a node of a job can get, in each pool or in one of them."""
        answer = self._transport.get("/api/v1/flavors", pool=pool)
        return [read_result(FlavorOffer, item) for item in answer["flavors"]]

    def engines(self) -> list[Engine]:
        """The preset environments."""
        return [read_result(Engine, item) for item in self._transport.get("/api/v1/engines")["engines"]]

    def nodes(self, pool: str = "") -> list[NodeOffer]:
        """The machines that run jobs: all of them, or those of one pool."""
        answer = self._transport.get("/api/v1/nodes", pool=pool)
        return [read_result(NodeOffer, item) for item in answer["nodes"]]

    def whoami(self) -> Identity:
        """Who this client is for the platform."""
        return read_result(Identity, self._transport.get("/api/v1/whoami"))

    def credentials(self) -> Credentials:
        """Endpoints, project id, token and access keys, for tools that speak to the platform directly."""
        answer = self._transport.call("POST", "/api/v1/credentials")
        # The platform keeps only a hash of the token: the text is known here alone.
        return read_result(Credentials, answer | {"token": self._transport.token})

    def endpoints(self) -> Endpoints:
        """Where the API and the object store answer."""
        return read_result(Endpoints, self._transport.get("/api/v1/endpoints"))

    def create_login_link(self, user: str = "") -> str:
        """A link that signs in to the console once: for oneself, or for another user as administrator."""
        return str(self._transport.call("POST", "/api/v1/login-links", {"user": user})["url"])

    def access_keys(self) -> list[AccessKey]:
        """The caller's access keys, without their secret half."""
        answer = self._transport.get("/api/v1/access-keys")
        return [read_result(AccessKey, item) for item in answer["access_keys"]]

    def notifications(self) -> list[NotificationTarget]:
        """Where you are told about jobs."""
        answer = self._transport.get("/api/v1/notifications")
        return [read_result(NotificationTarget, item) for item in answer["targets"]]

    def add_notification(
        self, address: str, events: list[str] | None = None, *, covers_workspace: bool = False
    ) -> NotificationTarget:
        """Be told about jobs at a URL or a mail address; the answer holds the secret that signs the messages."""
        body: dict[str, object] = {"address": address, "covers_workspace": covers_workspace}
        if events is not None:
            body["events"] = events
        return read_result(NotificationTarget, self._transport.call("POST", "/api/v1/notifications", body))

    def remove_notification(self, target: str) -> None:
        """Be told there no more."""
        self._transport.call("DELETE", f"/api/v1/notifications/{self._target_id(target)}")

    def test_notification(self, target: str) -> None:
        """Send a message that only says that messages arrive."""
        self._transport.call("POST", f"/api/v1/notifications/{self._target_id(target)}/test", {})

    def _target_id(self, target: str) -> str:
        """The id of a place that is named by its id or its address; a URL cannot be a part of a path."""
        for known in self.notifications() if "/" in target or "@" in target else ():
            if known.address == target:
                return known.id
        return quote(target.replace("/", "_"), safe="")

    def ssh_keys(self) -> list[SshKey]:
        """Your public keys for ssh."""
        return [read_result(SshKey, item) for item in self._transport.get("/api/v1/ssh-keys")["ssh_keys"]]

    def add_ssh_key(self, key: str, name: str = "") -> SshKey:
        """Register a public key: it opens the jobs that you start from now on."""
        return read_result(
            SshKey, self._transport.call("POST", "/api/v1/ssh-keys", {"key": key, "name": name})
        )

    def remove_ssh_key(self, key: str) -> None:
        """Remove a key, by its fingerprint or its name."""
        self._transport.call("DELETE", f"/api/v1/ssh-keys/{quote(key, safe='')}")

    def ssh_access(self, job: str, node: int = 0, public_key: str = "") -> SshAccess:
        """What an ssh client needs to enter a node of a job; with a certificate for the public key, if given."""
        body = {"node": node, "public_key": public_key}
        path = f"/api/v1/jobs/{quote(job, safe='')}/ssh"
        return read_result(SshAccess, self._transport.call("POST", path, body))

    def create_access_key(self, name: str) -> KeyPair:
        """Create an access key; this answer is the only place where its secret half is shown."""
        return read_result(KeyPair, self._transport.call("POST", "/api/v1/access-keys", {"name": name}))

    def delete_access_key(self, access_key: str) -> None:
        """Make an access key useless from now on."""
        self._transport.call("DELETE", f"/api/v1/access-keys/{quote(access_key, safe='')}")

    def tokens(self) -> list[Token]:
        """The caller's tokens, without their secret part."""
        return [read_result(Token, item) for item in self._transport.get("/api/v1/tokens")["tokens"]]

    def create_token(
        self, name: str, *, scopes: list[str] | None = None, days: float | None = None
    ) -> NewToken:
        """Create a token; this answer is the only place where its text is shown."""
        body: dict[str, Any] = {"name": name}
        if scopes:
            body["scopes"] = scopes
        if days is not None:
            body["days"] = days
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
