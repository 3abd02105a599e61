"""ssh into running jobs: permission, and the bytes in between; and the keys that users register."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response, WebSocket
from pydantic import Field

from trainshed.api.authentication import CallerOf, PlatformOf, authenticate
from trainshed.api.native.models import Model, RequestModel
from trainshed.api.native.tunnel import carry, close_with_words
from trainshed.model.errors import TrainshedError
from trainshed.services import ssh_access, ssh_keys, ssh_tunnels
from trainshed.services.platform import Platform
from trainshed.services.ssh_access import SshAccess, SshGate
from trainshed.services.ssh_keys import SshKeyView

__all__ = ["router", "tunnel_router"]

router = APIRouter(tags=["ssh"])
# A tunnel is a WebSocket, which finds out by itself who asks for it.
tunnel_router = APIRouter(tags=["ssh"])

_MOST_TUNNELS = 256
# What a WebSocket says when it is closed: refused, or too many.
_REFUSED, _TRY_LATER = 1008, 1013


class AccessRequest(RequestModel):
    """Which node is entered, and by whom."""

    node: int = Field(default=0, ge=0)
    public_key: str = Field(default="", description="A key to get a certificate for, as in id_ed25519.pub.")


class KeyRequest(RequestModel):
    """A public key to be registered."""

    key: str = Field(description="One line, as in id_ed25519.pub.")
    name: str = Field(default="", description="By default the key's comment.")


class SshKeyList(Model):
    """A user's keys, oldest first."""

    ssh_keys: list[SshKeyView]


@router.post("/jobs/{job}/ssh", summary="Enter a job by ssh")
def grant_ssh(
    platform: PlatformOf, caller: CallerOf, job: str, body: AccessRequest | None = None
) -> SshAccess:
    """What an ssh client needs: user, host key, and a certificate of a few minutes if a public key was given."""
    asked = body or AccessRequest()
    return ssh_access.grant_access(platform, caller, job, asked.node, asked.public_key)


@router.get("/ssh-keys", summary="List your keys for ssh")
def list_keys(platform: PlatformOf, caller: CallerOf) -> SshKeyList:
    """The public keys that open your jobs."""
    return SshKeyList(ssh_keys=ssh_keys.list_ssh_keys(platform, caller))


@router.post("/ssh-keys", status_code=201, summary="Register a key for ssh")
def add_key(platform: PlatformOf, caller: CallerOf, body: KeyRequest) -> SshKeyView:
    """Register a public key: it opens the jobs that you start from now on."""
    return ssh_keys.add_ssh_key(platform, caller, body.key, body.name)


@router.delete("/ssh-keys/{key:path}", status_code=204, summary="Remove a key for ssh")
def remove_key(platform: PlatformOf, caller: CallerOf, key: str) -> Response:
    """Remove a key, by its fingerprint or its name."""
    ssh_keys.remove_ssh_key(platform, caller, key)
    return Response(status_code=204)


@tunnel_router.websocket("/jobs/{job}/ssh/{node}")
async def open_tunnel(websocket: WebSocket, job: str, node: int) -> None:
    """Carry bytes between a caller and the ssh server of a node, as binary messages."""
    platform: Platform = websocket.app.state.platform

    def find_gate() -> SshGate:
        caller = authenticate(platform, websocket, "POST")
        return ssh_access.find_gate(platform, caller, job, node)

    try:
        gate = await asyncio.to_thread(find_gate)
        connection = await ssh_tunnels.open_tunnel(gate)
    except (TrainshedError, OSError) as fault:
        reason = fault.message if isinstance(fault, TrainshedError) else "The node does not answer."
        # Accepted first: whoever is refused before that never learns why.
        await websocket.accept()
        await close_with_words(websocket, _REFUSED, reason)
        return
    tunnels: set[WebSocket] = websocket.app.state.tunnels
    try:
        await websocket.accept()
        if len(tunnels) >= _MOST_TUNNELS:
            await close_with_words(websocket, _TRY_LATER, "Too many connections by ssh at once.")
            return
        tunnels.add(websocket)
        await carry(
            websocket,
            connection,
            words="The node hung up: the job's processes there have ended, or its ssh server has.",
            find_end=(lambda: ssh_tunnels.find_end(gate)) if gate.is_elsewhere else None,
        )
    finally:
        tunnels.discard(websocket)
        connection.close()
