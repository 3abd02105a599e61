"""What answers at a URL may be anything: a proxy's page, another program, half an answer, or nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from trainshed.client import Client
from trainshed.client.log_stream import resume_events
from trainshed.client.transport import Transport
from trainshed.model.errors import NotAuthenticated, NotFound, TrainshedError, Unavailable


class _Odd(BaseHTTPRequestHandler):
    """Answers each path in an odd way of its own."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(f"{self.path} {self.headers.get('Authorization', '')}")
        if self.path.startswith("/page"):
            self._answer(200, b"<html>Sign in to the hotel's network</html>")
        elif self.path.startswith("/bare404"):
            self._answer(404, b"<html>no</html>")
        elif self.path.startswith("/list"):
            self._answer(500, b'{"error": ["odd"]}')
        elif self.path.startswith("/away"):
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/thief")  # type: ignore[attr-defined]
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path.startswith("/cut"):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"half"')
            self.close_connection = True
        elif self.path.startswith("/stream"):
            self._stream()
        elif self.path.startswith("/api/v1/jobs/x"):
            self._answer(200, b'{"id": 1}')

    def _stream(self) -> None:
        """One event per connection; the connection breaks behind it, and the third one ends well."""
        number = sum(line.startswith("/stream") for line in self.seen)
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        kind = "end" if number == 3 else "message"
        self.wfile.write(f"event: {kind}\nid: {number}\ndata: {number}\n\ndata: half".encode())
        self.close_connection = True

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def transport() -> Iterator[Transport]:
    _Odd.seen = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Odd)
    thread = threading.Thread(target=server.serve_forever, args=[0.05])
    thread.start()
    transport = Transport(f"http://127.0.0.1:{server.server_port}", "tsh_token")
    try:
        yield transport
    finally:
        transport.close()
        server.shutdown()
        server.server_close()
        thread.join()


def test_page_of_somebody_else(transport: Transport) -> None:
    with pytest.raises(Unavailable, match="not a Trainshed platform"):
        transport.get("/page")


def test_error_without_explanation(transport: Transport) -> None:
    with pytest.raises(NotFound, match="status 404"):
        transport.get("/bare404")
    with pytest.raises(TrainshedError, match="status 500"):
        transport.get("/list")


def test_token_does_not_follow_a_redirect(transport: Transport) -> None:
    with pytest.raises(Unavailable, match="/thief"):
        transport.get("/away")
    assert not any("thief" in line for line in _Odd.seen)


def test_answer_that_is_cut_off_is_asked_for_once_more(transport: Transport) -> None:
    with pytest.raises(Unavailable) as fault:
        transport.get("/cut")
    assert fault.value.code == "connection_lost"
    assert len(_Odd.seen) == 2


def test_stream_is_resumed_and_half_events_are_dropped(transport: Transport) -> None:
    got = []
    for event in resume_events(transport, "/stream", dict, patience=20):
        got.append(event.data)
        if event.kind == "end":
            break
    assert got == ["1", "2", "3"]


def test_nobody_there() -> None:
    transport = Transport("http://127.0.0.1:9", "tsh_x")
    try:
        with pytest.raises(Unavailable, match="does not answer"):
            transport.get("/x")
        with pytest.raises(Unavailable, match="does not answer"):
            next(resume_events(transport, "/x", dict, patience=0))
    finally:
        transport.close()


def test_answer_of_another_shape(transport: Transport) -> None:
    with Client(transport.url, "tsh_x") as client, pytest.raises(Unavailable, match="cannot be understood"):
        client.get("x")


@pytest.mark.parametrize("token", ["tsh_a\nb", "tsh_a b", "tsh_ä"])
def test_token_with_odd_characters_is_not_quoted(token: str) -> None:
    with pytest.raises(NotAuthenticated) as fault:
        Transport("http://127.0.0.1:9", token)
    assert token not in str(fault.value)


def test_proxy_of_the_environment_is_not_used_for_this_machine(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with pytest.raises(NotFound):
        transport.get("/bare404")
