"""Answers when the event loop cannot: that the store is stalled, instead of nothing at all.

The loop does short work itself, and a disk that hangs may catch it there. Whoever asks then how the store is, or comes
with a request, must not wait as long as the disk does. A thread that does nothing else looks whether the loop still
lives; while it does not, it takes new connections and answers 503, which clients take for a reason to try again.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import threading
import time

__all__ = ["Understudy"]

_LOOK_SECONDS = 5.0
# For all that a client has to say, and to hear.
_CLIENT_SECONDS = 2.0
_BODY = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>ServiceUnavailable</Code>'
    b"<Message>The disk of the object store does not answer. Please try again.</Message></Error>"
)
_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/xml\r\nretry-after: 5\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(_BODY), _BODY)
)


class Understudy:
    """Stands in for a loop that has not called `beat` for so many seconds."""

    def __init__(self, listener: int, patience: float, tls: ssl.SSLContext | None = None) -> None:
        self._listener = socket.socket(fileno=os.dup(listener))
        self._patience = patience
        self._tls = tls
        self._beat = time.monotonic()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="understudy", daemon=True)
        self._thread.start()

    def beat(self) -> None:
        """The loop lives."""
        self._beat = time.monotonic()

    def stop(self) -> None:
        """Stand in no more, and give the port back."""
        self._is_over.set()
        self._thread.join(_CLIENT_SECONDS)

    @property
    def is_needed(self) -> bool:
        """Whether the loop has been silent for too long."""
        return time.monotonic() - self._beat > self._patience and not self._is_over.is_set()

    def _watch(self) -> None:
        with self._listener:
            while not self._is_over.wait(min(_LOOK_SECONDS, self._patience / 3)):
                while self.is_needed:
                    # The loop may have come back while nobody called.
                    if select.select([self._listener], [], [], 0.2)[0] and self.is_needed:
                        # It may have been faster after all.
                        with contextlib.suppress(OSError):
                            self._refuse(self._listener.accept()[0])

    def _refuse(self, stream: socket.socket) -> None:
        stream.settimeout(_CLIENT_SECONDS)
        with stream:
            if self._tls is not None:
                stream = self._tls.wrap_socket(stream, server_side=True)
            with stream:
                stream.recv(1 << 16)
                stream.sendall(_ANSWER)
                # Closed with bytes unread, the connection would be reset and the answer lost.
                stream.shutdown(socket.SHUT_WR)
                until = time.monotonic() + _CLIENT_SECONDS
                while stream.recv(1 << 16) and time.monotonic() < until:
                    pass
