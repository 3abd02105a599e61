"""What all connections of the object store's HTTP server share: who answers, and how patient the server is."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import formatdate
from typing import TYPE_CHECKING

from trainshed.api.obs.wire.request import Request

if TYPE_CHECKING:
    from trainshed.api.obs.wire.connection import Connection

__all__ = ["Handler", "Limits", "Lobby"]

Handler = Callable[[Request], Awaitable[None]]

# What is read at once where it is not known what comes.
_SCRATCH = 1 << 18


@dataclass(frozen=True)
class Limits:
    """How long a client may take, and how much it may say before the body."""

    head_bytes: int = 64 << 10
    # From the first byte of a head to its last.
    head_seconds: float = 30.0
    # Between two requests.
    idle_seconds: float = 120.0
    # Without a byte of a body, or without taking one of an answer.
    silent_seconds: float = 120.0
    # For a client that still sends what was refused.
    linger_seconds: float = 5.0
    look_seconds: float = 5.0


class Lobby:
    """What all connections of a server share. Used from one event loop."""

    def __init__(self, handler: Handler, limits: Limits) -> None:
        self.handler = handler
        self.limits = limits
        self.connections: set[Connection] = set()
        self.is_closing = False
        # Filled and emptied within one callback, so that one is enough for all.
        self.scratched = bytearray(_SCRATCH)
        self.scratch = memoryview(self.scratched)
        self._second = 0
        self._date = ""

    def date(self) -> str:
        """The line that tells the time."""
        second = int(time.time())
        if second != self._second:
            self._second, self._date = second, f"date: {formatdate(second, usegmt=True)}\r\n"
        return self._date
