"""What servers and proxies answer, byte by byte, and what a connection makes of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from trainshed.store.remote.http_connection import HttpConnection, as_host

OK = b"HTTP/1.1 200 OK\r\n"


class Peer:
    """A server that says what it is told, one answer after the other on one connection."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.answers: list[bytes] = []
        self.requests: list[bytes] = []
        self.connections = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                while self.answers and (request := self._read(connection)):
                    self.requests.append(request)
                    connection.sendall(self.answers.pop(0))

    def _read(self, connection: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = connection.recv(65536)
            if not piece:
                return b""
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
        )
        while len(body) < length:
            body += connection.recv(65536)
        return head + b"\r\n\r\n" + body

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(90)


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.close()


def connect(peer: Peer) -> HttpConnection:
    return HttpConnection("127.0.0.1", peer.port, timeout=120, trust=None)


def test_one_connection_serves_one_request_after_the_other(peer: Peer) -> None:
    peer.answers = [
        OK + b'Content-Length: 5\r\nETag: "x"\r\nVary: a\r\nvary: b\r\n\r\nfirst',
        OK + b"Transfer-Encoding: chunked\r\n\r\n3;name=x\r\nsec\r\n3\r\nond\r\n0\r\nTrailer: x\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
        OK + b"Content-Length: 7\r\n\r\n",
        OK + b"content-length: 4, 4\r\n\r\nlast",
    ]
    connection = connect(peer)
    first = connection.request("GET", "/a?b=c", {"Authorization": "Bearer t"})
    assert first.headers["etag"] == '"x"' and first.headers["vary"] == "a, b"
    assert first.read() == b"first" and first.is_over and first.can_go_on and first.read() == b""
    second = connection.request("POST", "/", {"Content-Length": "100000"}, bytes(100_000))
    buffer = memoryview(bytearray(100))
    pieces = []
    while count := second.readinto(buffer):
        pieces.append(bytes(buffer[:count]))
    assert b"".join(pieces) == b"second" and second.is_over and second.can_go_on
    third = connection.request("PUT", "/", {"Content-Length": "4"}, memoryview(b"body"))
    assert (third.status, third.read(), third.is_over, third.can_go_on) == (204, b"", True, True)
    head = connection.request("HEAD", "/", {})
    assert head.headers["content-length"] == "7" and head.is_over
    assert connection.request("GET", "/", {}).read() == b"last"
    connection.close()
    assert peer.connections == 1
    assert peer.requests[0].startswith(f"GET /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:{peer.port}\r\n".encode())
    assert peer.requests[1].endswith(bytes(100_000)) and peer.requests[2].endswith(b"\r\n\r\nbody")


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nab", b"ab"),
        (OK + b"\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab", b"ab"),
    ],
)
def test_a_connection_that_ends_with_its_answer_is_not_used_again(
    peer: Peer, answer: bytes, body: bytes
) -> None:
    peer.answers = [answer]
    connection = connect(peer)
    found = connection.request("GET", "/", {})
    assert found.read() == body and found.is_over and not found.can_go_on
    connection.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 2",
        OK + b"Content-Length: 1",
        OK + b"Content-Length: -1\r\n\r\n",
        OK + b"Content-Length: 1, 2\r\n\r\nab",
        OK + b"x: y\r\n" * 300 + b"\r\n",
        OK + b"x: " + b"y" * 70_000 + b"\r\n\r\n",
        OK + b"Content-Length: 10\r\n\r\nshort",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
    ],
)
def test_what_is_no_whole_answer_is_a_fault(peer: Peer, answer: bytes) -> None:
    for way in ("read", "readinto"):
        peer.answers = [answer]
        connection = connect(peer)
        with pytest.raises(OSError):
            found = connection.request("GET", "/", {})
            if way == "read":
                found.read()
            while found.readinto(memoryview(bytearray(64))):
                pass
        connection.close()


def test_a_header_cannot_begin_another(peer: Peer) -> None:
    for target, headers in (("/ HTTP/1.1\r\nx: y", {}), ("/", {"a": "b\nc: d"})):
        with pytest.raises(ConnectionError):
            connect(peer).request("GET", target, headers)
    assert not peer.connections


def test_names_of_hosts() -> None:
    assert as_host("shed.example") == b"shed.example" and as_host("schüppen.example") == "schüppen.example"
    named = {
        HttpConnection(host, port, timeout=1, trust=None)._name
        for host, port in (("a", 80), ("a", None), ("a", 81), ("::1", 80), ("::1", 81))
    }
    assert named == {"a", "a:81", "[::1]", "[::1]:81"}
