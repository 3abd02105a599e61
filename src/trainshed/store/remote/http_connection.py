"""One HTTP/1.1 connection to the platform.

What Python's own client does, as far as the platform and proxies before it need it. That one loads half of the library
for e-mail, and TLS where none is spoken: more time than a node's whole check-in takes.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import ssl

__all__ = ["HttpAnswer", "HttpConnection", "as_host"]

_LONGEST_LINE, _MOST_LINES = 64 << 10, 200
# A small body goes out with the head of its request, in one packet where it fits.
_SMALL_BODY = 64 << 10
_NO_BODY = frozenset({204, 304})
_DEFAULT_PORTS = {True: 443, False: 80}


def as_host(name: str) -> str | bytes:
    """A host's name as the resolver takes it: plain names need none of Python's tables for other scripts."""
    return name.encode("ascii") if name.isascii() else name


class HttpConnection:
    """A connection that is opened by its first request, and used for one request after the other."""

    def __init__(self, host: str, port: int | None, *, timeout: float, trust: ssl.SSLContext | None) -> None:
        is_default = port is None or port == _DEFAULT_PORTS[trust is not None]
        self._host = host
        self._port = port or _DEFAULT_PORTS[trust is not None]
        name = f"[{host}]" if ":" in host else host
        self._name = name if is_default else f"{name}:{port}"
        self._timeout = timeout
        self._trust = trust
        self._socket: socket.socket | None = None
        self._file: BinaryIO | None = None

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | bytearray | memoryview = b"",
    ) -> HttpAnswer:
        """Send a request; its answer, whose body is still to be read. All that fails is an OSError."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._name}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if any("\r" in line or "\n" in line for line in lines):
            raise ConnectionError("a request holds a line's end")
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        connection = self._socket or self._connect()
        if len(body) <= _SMALL_BODY:
            connection.sendall(b"".join((head, body)))
        else:
            connection.sendall(head)
            connection.sendall(body)
        if self._file is None:
            self._file = connection.makefile("rb")
        return HttpAnswer(self._file, has_body=method != "HEAD")

    def close(self) -> None:
        """Close the connection, if it is open."""
        for part in (self._file, self._socket):
            if part is not None:
                part.close()
        self._file = self._socket = None

    def _connect(self) -> socket.socket:
        # The stubs do not know that a name may be bytes.
        address: Any = (as_host(self._host), self._port)
        connection = socket.create_connection(address, timeout=self._timeout)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._trust is not None:
                connection = self._trust.wrap_socket(connection, server_hostname=self._host)
        except BaseException:
            connection.close()
            raise
        self._socket = connection
        return connection


class HttpAnswer:
    """An answer: its status and headers (in lower case) at once, its body as it is read."""

    def __init__(self, file: BinaryIO, *, has_body: bool) -> None:
        self._file = file
        version, self.status = self._read_status()
        self.headers = self._read_headers()
        while 100 <= self.status < 200:
            # Only that the real one is on its way.
            version, self.status = self._read_status()
            self.headers = self._read_headers()
        self._is_chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        # What is left of the body, or of the piece that is being read; None: all until the connection ends.
        self._left: int | None = 0
        if has_body and self.status not in _NO_BODY and not self._is_chunked:
            self._left = self._read_length()
        self.is_over = not has_body or self.status in _NO_BODY or (not self._is_chunked and self._left == 0)
        says_close = "close" in self.headers.get("connection", "").lower()
        # Whether another request can follow, once the body is read.
        self.can_go_on = version == b"HTTP/1.1" and not says_close and self._left is not None

    def readinto(self, view: memoryview) -> int:
        """The next bytes; 0 at the end. A body that breaks off is a `ConnectionError`."""
        if self.is_over or not len(view):
            return 0
        if self._is_chunked and not self._left and not self._begin_chunk():
            return 0
        count = self._file.readinto(view if self._left is None else view[: self._left])  # type: ignore[attr-defined]
        self._count(count)
        return int(count)

    def read(self) -> bytes:
        """All that is left of the body."""
        pieces: list[bytes] = []
        while not self.is_over:
            if self._is_chunked and not self._left and not self._begin_chunk():
                break
            data = self._file.read() if self._left is None else self._file.read(self._left)
            pieces.append(data)
            self._count(len(data))
        return b"".join(pieces)

    def _count(self, count: int) -> None:
        """So many bytes were read."""
        if self._left is None:
            self.is_over = not count
            return
        if not count:
            raise ConnectionError("it ended too early")
        self._left -= count
        if self._left:
            return
        if self._is_chunked:
            self._read_line()
        else:
            self.is_over = True

    def _begin_chunk(self) -> bool:
        """The next piece of a body that comes in pieces; whether there is one."""
        size = self._read_line().partition(b";")[0].strip()
        try:
            self._left = int(size, 16)
        except ValueError:
            raise ConnectionError("a piece of the answer has no size") from None
        if self._left:
            return True
        while self._read_line():
            pass
        self.is_over = True
        return False

    def _read_status(self) -> tuple[bytes, int]:
        line = self._read_line()
        version, _, rest = line.partition(b" ")
        status = rest[:3]
        if not version.startswith(b"HTTP/1.") or not status.isdigit() or len(status) != 3:
            raise ConnectionError("what answered does not speak HTTP")
        return version, int(status)

    def _read_headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        for _ in range(_MOST_LINES):
            line = self._read_line()
            if not line:
                return headers
            name, _, value = line.decode("latin-1").partition(":")
            key, value = name.strip().lower(), value.strip()
            headers[key] = f"{headers[key]}, {value}" if key in headers else value
        raise ConnectionError("the answer has too many headers")

    def _read_length(self) -> int | None:
        told = self.headers.get("content-length")
        if told is None:
            return None
        # Some proxies say it twice.
        lengths = {part.strip() for part in told.split(",")}
        length = lengths.pop()
        if lengths or not (length.isascii() and length.isdigit()):
            raise ConnectionError("the answer tells no length that can be read")
        return int(length)

    def _read_line(self) -> bytes:
        line = self._file.readline(_LONGEST_LINE + 1)
        if not line.endswith(b"\n"):
            raise ConnectionError(
                "the answer is cut off" if line else "the connection was closed without an answer"
            )
        return line.rstrip(b"\r\n")
