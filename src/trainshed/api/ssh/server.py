"""The platform's own ssh port. The user name is a job's, the key a registered one; sessions are carried on into the
job, where its own ssh server runs them. Nothing of a session runs here."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import asyncssh

from trainshed.api.ssh.relay import RelaySession
from trainshed.model.errors import TrainshedError
from trainshed.model.ssh import fingerprint
from trainshed.services.platform import Platform
from trainshed.services.ssh_access import SshEntry, find_entry, is_registered
from trainshed.services.ssh_keys import port_key
from trainshed.services.ssh_tunnels import open_tunnel

__all__ = ["serve"]

_MOST_CONNECTIONS = 256
_log = logging.getLogger("trainshed.ssh")


class Visitor(asyncssh.SSHServer):
    """One connection from outside."""

    def __init__(self, platform: Platform, visitors: set[Visitor]) -> None:
        self._platform = platform
        self._visitors = visitors
        self._connection: asyncssh.SSHServerConnection | None = None
        self._user = ""
        self._key = ""
        self._inner: asyncio.Future[asyncssh.SSHClientConnection] | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """Count the connection, and refuse one too many."""
        self._connection = conn
        self._visitors.add(self)
        if len(self._visitors) > _MOST_CONNECTIONS:
            conn.disconnect(asyncssh.DISC_TOO_MANY_CONNECTIONS, "Too many connections by ssh at once.")

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the way into the job, too."""
        self._visitors.discard(self)
        if self._inner is not None:
            self._inner.add_done_callback(_close)

    def begin_auth(self, username: str) -> bool:
        """Nobody comes in without a key."""
        self._user = username
        return True

    def public_key_auth_supported(self) -> bool:
        """By key only."""
        return True

    async def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Whether a user has registered this key. What the user may enter is told later, in words."""
        self._key = fingerprint(key.export_public_key().decode())
        return await asyncio.to_thread(is_registered, self._platform, self._key)

    def session_requested(self) -> Any:
        """A shell, a command or a subsystem: carried on as it is."""
        assert self._connection is not None
        channel = self._connection.create_server_channel(encoding=None)
        return channel, RelaySession(self.enter)

    def connection_requested(self, dest_host: str, dest_port: int, *_: Any) -> Any:
        """A port of the job."""

        async def forward() -> Any:
            assert self._connection is not None
            inner = await self._enter_or_refuse()
            return await self._connection.forward_tunneled_connection(inner, dest_host, dest_port)

        return forward()

    def unix_connection_requested(self, dest_path: str) -> Any:
        """A socket of the job's."""

        async def forward() -> Any:
            assert self._connection is not None
            inner = await self._enter_or_refuse()
            return await self._connection.forward_tunneled_unix_connection(inner, dest_path)

        return forward()

    async def _enter_or_refuse(self) -> asyncssh.SSHClientConnection:
        try:
            return await self.enter()
        except TrainshedError as fault:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, fault.message) from None

    async def enter(self) -> asyncssh.SSHClientConnection:
        """The connection into the job, one for all sessions of this visitor."""
        if self._inner is None:
            self._inner = asyncio.ensure_future(self._connect())
        return await asyncio.shield(self._inner)

    async def _connect(self) -> asyncssh.SSHClientConnection:
        entry = await asyncio.to_thread(find_entry, self._platform, self._key, self._user)
        _log.info("%s enters job %s, node %s", entry.user_name, entry.job_id, entry.node)
        try:
            return await _connect_inside(entry)
        except (OSError, asyncssh.Error) as fault:
            _log.warning("job %s does not answer: %s", entry.job_id, fault)
            raise TrainshedError(
                "The job does not answer.", hint="`trainshed show` says how it is."
            ) from None


async def _connect_inside(entry: SshEntry) -> asyncssh.SSHClientConnection:
    gate = await open_tunnel(entry.gate)
    try:
        return await asyncssh.connect(
            entry.job_id,
            sock=gate,
            username=entry.user,
            client_keys=[asyncssh.import_private_key(entry.client_key)],
            known_hosts=([asyncssh.import_public_key(entry.host_key)], [], []),
            config=None,
            agent_path=None,
            login_timeout=30,
            keepalive_interval=30,
        )
    except BaseException:
        gate.close()
        raise


def _close(inner: asyncio.Future[asyncssh.SSHClientConnection]) -> None:
    if not inner.cancelled() and inner.exception() is None:
        inner.result().close()


async def serve(
    platform: Platform, host: str, port: int, stop: asyncio.Event, on_ready: Callable[[int], None]
) -> None:
    """Serve until asked to stop; `on_ready` is told the port."""
    visitors: set[Visitor] = set()
    acceptor = await asyncssh.listen(
        host=host,
        port=port,
        server_factory=lambda: Visitor(platform, visitors),
        server_host_keys=[asyncssh.import_private_key(port_key(platform))],
        login_timeout=60,
        keepalive_interval=30,
        config=None,
    )
    on_ready(acceptor.get_port())
    await stop.wait()
    acceptor.close()
    for visitor in list(visitors):
        if visitor._connection is not None:
            visitor._connection.disconnect(asyncssh.DISC_BY_APPLICATION, "The platform is stopped.")
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(acceptor.wait_closed(), 2)
