"""A WebSocket with nothing but the standard library: binary messages, as a client sends and gets them."""

from __future__ import annotations

import base64
import http.client
import os
import select
import socket
import ssl
import struct
import threading
from urllib.parse import urlsplit

__all__ = ["WebSocket"]

_SECONDS = 30.0
_SILENT_SECONDS = 60
_BINARY, _CLOSE, _PING, _PONG, _TEXT, _REST = 2, 8, 9, 10, 1, 0
_LONGEST = 16 << 20


class WebSocket:
    """A connection that is open. Closing it twice does no harm; what is cut off raises `OSError`."""

    def __init__(self, url: str, headers: dict[str, str], trust: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        connection = socket.create_connection((parts.hostname or "", port), timeout=_SECONDS)
        try:
            if parts.scheme == "https":
                context = trust or ssl.create_default_context()
                connection = context.wrap_socket(connection, server_hostname=parts.hostname)
            self._shake_hands(connection, parts.netloc, f"{parts.path}?{parts.query}", headers)
        except BaseException:
            connection.close()
            raise
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A platform whose machine is gone says nothing: it is asked after a while, and what it does not take ends all.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_KEEPIDLE, _SILENT_SECONDS // 2),
            (socket.TCP_KEEPINTVL, _SILENT_SECONDS // 6),
            (socket.TCP_USER_TIMEOUT, _SILENT_SECONDS * 1000),
        ):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        self._connection = connection
        self._sending = threading.Lock()

    @staticmethod
    def _shake_hands(connection: socket.socket, host: str, target: str, headers: dict[str, str]) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {target} HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade"]
        lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        connection.sendall("\r\n".join((*lines, "", "")).encode("ascii"))
        head = b""
        # One byte after the other: what follows the head belongs to the first message.
        while not head.endswith(b"\r\n\r\n"):
            piece = connection.recv(1)
            if not piece or len(head) > 16384:
                raise ConnectionError("the platform hung up")
            head += piece
        status = head.split(None, 2)[1:2]
        if status != [b"101"]:
            words = http.client.responses.get(int(status[0]) if status and status[0].isdigit() else 0, "")
            raise ConnectionError(f"the platform refused the tunnel: {status} {words}")

    def send(self, data: bytes) -> None:
        """Send one message."""
        self._send(_BINARY, data)

    def receive(self) -> bytes:
        """The bytes of the next message, or of a part of one; nothing at the end."""
        while True:
            first, second = self._read(2)
            kind, length = first & 15, second & 127
            if length == 126:
                (length,) = struct.unpack("!H", self._read(2))
            elif length == 127:
                (length,) = struct.unpack("!Q", self._read(8))
            if length > _LONGEST or second & 128:
                raise ConnectionError("that is no message of a WebSocket's server")
            data = self._read(length)
            if kind == _PING:
                self._send(_PONG, data)
            elif kind == _CLOSE:
                return b""
            elif kind in (_BINARY, _TEXT, _REST) and data:
                return data

    def close(self) -> None:
        """Say goodbye and hang up; who waits in `receive` is woken."""
        try:
            self._send(_CLOSE, struct.pack("!H", 1000))
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._connection.close()

    def _send(self, kind: int, data: bytes) -> None:
        length = len(data)
        if length < 126:
            head = struct.pack("!BB", 128 | kind, 128 | length)
        elif length < 65536:
            head = struct.pack("!BBH", 128 | kind, 128 | 126, length)
        else:
            head = struct.pack("!BBQ", 128 | kind, 128 | 127, length)
        mask = os.urandom(4)
        with self._sending:
            self._connection.sendall(head + mask + _hide(data, mask))

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self._receive_some(min(count - len(data), 1 << 16))
            if not piece:
                raise ConnectionError("the platform hung up")
            data += piece
        return bytes(data)

    def _receive_some(self, most: int) -> bytes:
        if not isinstance(self._connection, ssl.SSLSocket):
            return self._connection.recv(most)
        # With TLS, two threads must not be in one connection at once: what comes is waited for outside.
        if not self._connection.pending():
            select.select([self._connection], [], [])
        with self._sending:
            return self._connection.recv(most)


def _hide(data: bytes, mask: bytes) -> bytes:
    """The data, each byte changed by the mask, as a client must send it."""
    size = len(data)
    long_mask = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "big") ^ int.from_bytes(long_mask, "big")).to_bytes(size, "big")
