"""The HTTP server of the object store: a port, its connections, and their end."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

from trainshed.api.obs.wire.connection import Connection
from trainshed.api.obs.wire.lobby import Handler, Limits, Lobby
from trainshed.api.obs.wire.understudy import Understudy

__all__ = ["Server", "make_tls_context"]

_BACKLOG = 1024
# A loop that was not heard of for this long is stalled.
_PATIENCE = 15.0


def make_tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """What a server needs to speak TLS. Clients of old systems speak nothing later than 1.2."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    return context


class Server:
    """Serves a handler on one port."""

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
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def open(self, host: str, port: int) -> int:
        """Listen; returns the port."""
        loop = asyncio.get_running_loop()
        scheme = "https" if self._tls else "http"
        self._server = await loop.create_server(
            lambda: Connection(self._lobby, scheme),
            host,
            port,
            family=socket.AF_UNSPEC,
            backlog=_BACKLOG,
            reuse_address=True,
            ssl=self._tls,
        )
        self._understudies = [
            Understudy(listener.fileno(), self._patience, self._tls) for listener in self._server.sockets
        ]
        self._timer = loop.call_later(self._lobby.limits.look_seconds, self._look)
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for understudy in self._understudies:
            understudy.beat()
        for connection in list(self._lobby.connections):
            connection.look(now)
        self._timer = loop.call_later(self._lobby.limits.look_seconds, self._look)

    async def close(self, seconds: float) -> bool:
        """Take no more requests and let those under way end; tells whether all did in time."""
        if self._server is not None:
            self._server.close()
        for understudy in self._understudies:
            understudy.stop()
        lobby = self._lobby
        lobby.is_closing = True
        for connection in list(lobby.connections):
            connection.close_idle()
        until = asyncio.get_running_loop().time() + seconds
        while lobby.connections and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.02)
        if self._timer is not None:
            self._timer.cancel()
        left = list(lobby.connections)
        tasks = [task for connection in left if (task := connection.end()) is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1)
        return not left
