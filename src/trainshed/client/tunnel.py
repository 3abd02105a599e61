"""A two-way stream of bytes through the platform's API: a WebSocket with binary messages, on the standard library."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import ssl
import struct
import threading
from urllib.parse import urlsplit

from trainshed import __version__
from trainshed.client.trust import explain_tls, trust_for
from trainshed.model.errors import NotAllowed, Unavailable

__all__ = ["Tunnel", "open_tunnel"]

_MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUED, _BINARY, _CLOSE, _PING, _PONG = 0, 2, 8, 9, 10
_PIECE = 64 * 1024
_LONGEST_HEAD = 64 * 1024
_LONGEST_FRAME = 64 << 20
_TIMEOUT_SECONDS = 60.0
_BROKEN = b"The connection to the platform was cut."


class Tunnel:
    """An open stream. One thread may send while another receives."""

    def __init__(self, connection: socket.socket, received: bytes) -> None:
        self._connection = connection
        self._received = bytearray(received)
        self._lock = threading.Lock()
        self._has_finished = False
        # Why the other side closed the stream, if it said so, or that it was cut.
        self.reason = ""

    def send(self, data: bytes) -> None:
        """Send bytes."""
        for start in range(0, len(data), _PIECE):
            self._send_frame(_BINARY, data[start : start + _PIECE])

    def receive(self) -> bytes:
        """The next bytes; nothing when the stream has ended."""
        while True:
            kind, data = self._read_frame()
            if kind == _PING:
                self._send_frame(_PONG, data)
            elif kind == _CLOSE:
                self.reason = data[2:].decode("utf-8", "replace")
                return b""
            elif kind in (_CONTINUED, _BINARY) and data:
                return data

    def finish(self) -> None:
        """Say that nothing more will be sent."""
        self._has_finished = True
        try:
            self._send_frame(_CLOSE, struct.pack("!H", 1000))
        except OSError:
            pass

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _send_frame(self, kind: int, data: bytes) -> None:
        size = len(data)
        if size < 126:
            head = struct.pack("!BB", 0x80 | kind, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", 0x80 | kind, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, size)
        mask = os.urandom(4)
        with self._lock:
            self._connection.sendall(head + mask + _mask(data, mask))

    def _read_frame(self) -> tuple[int, bytes]:
        try:
            first, second = self._take(2)
            size = second & 0x7F
            if size == 126:
                (size,) = struct.unpack("!H", self._take(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", self._take(8))
            mask = self._take(4) if second & 0x80 else b""
            if size > _LONGEST_FRAME:
                return _CLOSE, b""
            data = self._take(size)
        except (EOFError, OSError):
            # Whoever has said goodbye is not told that nobody waved back.
            broken = b"" if self._has_finished else _BROKEN
            return _CLOSE, struct.pack("!H", 1006) + broken
        return first & 0x0F, _mask(data, mask) if mask else data

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            piece = self._connection.recv(max(_PIECE, size - len(self._received)))
            if not piece:
                raise EOFError
            self._received += piece
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken


def open_tunnel(url: str, token: str, path: str, ca: str = "") -> Tunnel:
    """A tunnel to a path of the platform's API."""
    place = urlsplit(url)
    host, port = place.hostname or "", place.port or (443 if place.scheme == "https" else 80)
    key = base64.b64encode(os.urandom(16)).decode()
    request = (
        f"GET {place.path.rstrip('/')}{path} HTTP/1.1\r\n"
        f"Host: {place.netloc.rpartition('@')[2]}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {key}\r\n"
        f"Authorization: Bearer {token}\r\nUser-Agent: trainshed/{__version__}\r\n\r\n"
    )
    connection: socket.socket | None = None
    try:
        connection = socket.create_connection((host, port), _TIMEOUT_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trust = trust_for(url, ca)
        if isinstance(trust, ssl.SSLContext):
            connection = trust.wrap_socket(connection, server_hostname=host)
        connection.sendall(request.encode())
        head, rest = _read_head(connection)
    except OSError as fault:
        if connection is not None:
            connection.close()
        raise explain_tls(url, fault) or Unavailable(
            f"{url} cannot be reached: {fault}.", hint="Check the address, and whether the platform is up."
        ) from None
    wanted = base64.b64encode(hashlib.sha1((key + _MAGIC).encode(), usedforsecurity=False).digest()).decode()
    if " 101 " not in head.splitlines()[0] or wanted not in head:
        connection.close()
        raise NotAllowed(
            f"The platform opens no tunnel ({head.splitlines()[0][:100]}).",
            hint="A proxy between you and the platform must let WebSockets through.",
            code="no_tunnel",
        )
    connection.settimeout(None)
    return Tunnel(connection, rest)


def _read_head(connection: socket.socket) -> tuple[str, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(4096)
        if not piece or len(data) > _LONGEST_HEAD:
            raise OSError("the connection was closed")
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    return head.decode("latin-1"), rest


def _mask(data: bytes, mask: bytes) -> bytes:
    """Mask bytes as the protocol wants it, a whole message at once."""
    if not data:
        return b""
    repeated = (mask * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(len(data), "big")
