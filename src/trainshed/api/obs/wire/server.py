"""The HTTP server of the object store: its connections, and their end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainshed.api.obs.wire.connection import Connection
from trainshed.api.obs.wire.lobby import Handler, Limits, Lobby
from trainshed.api.obs.wire.understudy import Understudy

__all__ = ["Server", "make_tls_context", "open_listeners"]

_BACKLOG = 1024
# A loop that was not heard of for this long is stalled.
_PATIENCE = 15.0
# When there is no descriptor left for another connection.
_BREATH_SECONDS = 1.0
_HANDSHAKE_SECONDS = 30.0
# Between two requests of one client: who was silent for longer may be asked to connect anew.
_LEAVE_SECONDS = 2.0

_log = logging.getLogger("trainshed.store")


def make_tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """What a server needs to speak TLS. Clients of old systems speak nothing later than 1.2."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    return context


def open_listeners(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on a port, one for each kind of address that the host has."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listeners: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            listener = socket.socket(family, socket.SOCK_STREAM)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


class Server:
    """Serves a handler on ports that it may share with other processes."""

    def __init__(
        self,
        handler: Handler,
        *,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        patience: float = _PATIENCE,
    ) -> None:
        self._patience = patience
        self._understudies: list[Understudy] = []
        self._lobby = Lobby(handler, limits or Limits())
        self._tls = tls
        self._listeners: Sequence[socket.socket] = ()
        self._servers: list[asyncio.Server] = []
        self._arriving: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._lobby.connections)

    async def open(
        self,
        listeners: Sequence[socket.socket],
        *,
        is_alone: bool = True,
    ) -> None:
        """Take connections from now on. Alone: no other process serves on the same ports."""
        loop = asyncio.get_running_loop()
        self._listeners = listeners
        if is_alone:
            self._understudies = [
                Understudy(listener.fileno(), self._patience, self._tls) for listener in listeners
            ]
        await self.accept(is_alone=is_alone)
        self._timer = loop.call_later(self._lobby.limits.look_seconds, self._look)

    async def accept(self, *, is_alone: bool) -> None:
        """Take connections in the way that is fastest, or in one that leaves some to other processes."""
        loop = asyncio.get_running_loop()
        for server in self._servers:
            server.close()
        self._servers = []
        for listener in self._listeners:
            if is_alone:
                loop.remove_reader(listener)
                # The loop closes what it was given.
                self._servers.append(
                    await loop.create_server(
                        self._connection, sock=listener.dup(), ssl=self._tls, backlog=_BACKLOG
                    )
                )
            else:
                loop.add_reader(listener, self._accept, listener)

    def _connection(self) -> Connection:
        return Connection(self._lobby, "https" if self._tls else "http")

    def _accept(self, listener: socket.socket) -> None:
        """Take one that waits. The loop would take all of them, and leave none to the others."""
        loop = asyncio.get_running_loop()
        try:
            stream, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except OSError as error:
            _log.warning("A connection has to wait: %s", error.strerror)
            loop.remove_reader(listener)
            loop.call_later(_BREATH_SECONDS, self._listen_again, listener)
            return
        stream.setblocking(False)
        with contextlib.suppress(OSError):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = loop.create_task(self._welcome(loop, stream))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    def _listen_again(self, listener: socket.socket) -> None:
        if listener in self._listeners and not self._servers:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    async def _welcome(self, loop: asyncio.AbstractEventLoop, stream: socket.socket) -> None:
        try:
            await loop.connect_accepted_socket(
                self._connection,
                stream,
                ssl=self._tls,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS if self._tls else None,
            )
        except OSError:
            # Gone already, or no friend of our certificate.
            stream.close()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for understudy in self._understudies:
            understudy.beat()
        for connection in list(self._lobby.connections):
            connection.look(now)
        self._timer = loop.call_later(self._lobby.limits.look_seconds, self._look)

    def share_out(self, among: int) -> None:
        """Have one of so many clients connect anew, because another process has joined."""
        for connection in list(self._lobby.connections)[::among]:
            connection.leave()

    async def retire(self) -> None:
        """Take no more requests, and wait for those under way, however long they take."""
        await self._stop_accepting()
        while self._lobby.connections:
            now = asyncio.get_running_loop().time()
            for connection in list(self._lobby.connections):
                connection.close_idle(now - _LEAVE_SECONDS)
            await asyncio.sleep(0.1)
        self._stop_timer()

    async def close(self, seconds: float) -> bool:
        """Take no more requests and let those under way end; tells whether all did in time."""
        until = asyncio.get_running_loop().time() + seconds
        await self._stop_accepting()
        lobby = self._lobby
        for connection in list(lobby.connections):
            connection.close_idle()
        while lobby.connections and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.02)
        self._stop_timer()
        left = list(lobby.connections)
        tasks = [task for connection in left if (task := connection.end()) is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1)
        return not left

    async def _stop_accepting(self) -> None:
        for server in self._servers:
            server.close()
        listeners, self._listeners = self._listeners, ()
        for listener in listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        for understudy in self._understudies:
            understudy.stop()
        if self._arriving:
            # They were taken, and nobody else will serve them.
            await asyncio.wait(self._arriving, timeout=_LEAVE_SECONDS)
        self._lobby.is_closing = True
        for task in list(self._arriving):
            task.cancel()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
