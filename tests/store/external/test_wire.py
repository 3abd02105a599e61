"""Requests to an endpoint that is slow to answer, breaks off, lies, or is away."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from trainshed.model.errors import InvalidInput, Unavailable
from trainshed.store import open_store
from trainshed.store.external import wire as wire_module
from trainshed.store.external.address import Address, Credentials, parse_address, parse_place
from trainshed.store.external.remote_file import open_remote
from trainshed.store.external.store import ExternalStore
from trainshed.store.external.wire import Refused, Wire, parse_xml
from trainshed.store.outage import Patience

Answer = Callable[["Endpoint"], None]


class Endpoint(BaseHTTPRequestHandler):
    """Answers as the test says, one after the other; the last answer stays."""

    protocol_version = "HTTP/1.1"
    answers: list[Answer]
    seen: list[tuple[str, str, dict[str, str]]]

    def _handle(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))
        seen = {name.lower(): value for name, value in self.headers.items()}
        type(self).seen.append((self.command, self.path, seen))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        answer(self)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _handle

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def say(status: int, body: bytes = b"", length: int | None = None, **headers: str) -> Answer:
    """An answer; one with a greater `length` than its body breaks off."""

    def answer(endpoint: Endpoint) -> None:
        endpoint.send_response(status)
        for name, value in headers.items():
            endpoint.send_header(name.replace("_", "-"), value)
        endpoint.send_header("content-length", str(len(body) if length is None else length))
        endpoint.end_headers()
        if endpoint.command != "HEAD":
            endpoint.wfile.write(body)
        if length is not None:
            endpoint.close_connection = True

    return answer


def hang_up(endpoint: Endpoint) -> None:
    endpoint.close_connection = True


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Endpoint]]:
    monkeypatch.setattr(wire_module, "_WAITS", (0.01, 0.01))
    monkeypatch.setattr(wire_module, "_LONG_WAIT", 0.05)
    handler = type("Handler", (Endpoint,), {"answers": [say(200)], "seen": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    handler.port = server.server_address[1]
    yield handler
    server.shutdown()
    server.server_close()
    thread.join()


KEYS = Credentials("access", "the-secret")


def wire_to(endpoint: Any) -> Wire:
    return Wire(parse_place("s3://shed", endpoint=f"http://127.0.0.1:{endpoint.port}"), KEYS)


def test_what_may_pass_is_tried_again(endpoint: Any) -> None:
    endpoint.answers[:] = [hang_up, say(503), say(200, b"here", etag='"e"')]
    wire = wire_to(endpoint)
    assert wire.ask("GET", "a b/é").body == b"here"
    assert [path for _, path, _ in endpoint.seen] == ["/shed/a%20b/%C3%A9"] * 3
    # A connection that was kept too long costs no try.
    endpoint.answers[:] = [hang_up, say(200, b"again")]
    assert wire.ask("GET", "x").body == b"again"
    endpoint.answers[:] = [say(503)]
    with pytest.raises(Unavailable) as caught:
        wire.ask("GET", "x")
    assert caught.value.code == "store_unreachable"
    wire.close()


def test_patience_waits_and_gives_up_when_told(endpoint: Any) -> None:
    said: list[str] = []
    wire = wire_to(endpoint)
    wire.patience = Patience(60.0, say=said.append)
    endpoint.answers[:] = [say(503)] * 6 + [say(200, b"back")]
    assert wire.ask("GET", "x").body == b"back"
    assert len(said) == 1 and said[0].endswith("Waiting for it.")
    wire.patience = Patience(60.0, give_up=lambda: len(endpoint.seen) > 12)
    endpoint.answers[:] = [say(503)]
    with pytest.raises(Unavailable):
        wire.ask("GET", "x")
    wire.close()


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (403, "SignatureDoesNotMatch", "store_refused"),
        (404, "NoSuchBucket", "store_refused"),
        (301, "PermanentRedirect", "store_refused"),
        (507, "Full", "disk_full"),
    ],
)
def test_what_no_caller_can_mend_is_explained(endpoint: Any, status: int, code: str, expected: str) -> None:
    endpoint.answers[:] = [say(status, f"<Error><Code>{code}</Code></Error>".encode())]
    wire = wire_to(endpoint)
    with pytest.raises(Unavailable) as caught:
        wire.ask("GET", "x")
    assert caught.value.code == expected and "the-secret" not in str(caught.value)
    assert len(endpoint.seen) == 1
    wire.close()


def test_other_refusals_go_to_the_caller(endpoint: Any) -> None:
    endpoint.answers[:] = [say(412, b"<Error><Code>PreconditionFailed</Code></Error>")]
    wire = wire_to(endpoint)
    with pytest.raises(Refused) as caught:
        wire.ask("PUT", "x", body=b"1")
    assert (caught.value.status, caught.value.code, caught.value.was_repeated) == (
        412,
        "PreconditionFailed",
        False,
    )
    endpoint.answers[:] = [hang_up, hang_up, say(412)]
    with pytest.raises(Refused) as caught:
        wire.ask("PUT", "x", body=b"1")
    assert caught.value.was_repeated
    wire.close()


def test_a_read_that_breaks_off_goes_on_where_it_stopped(endpoint: Any, tmp_path: Path) -> None:
    data = os.urandom(3 << 20)
    facts = {"etag": '"e"', "last_modified": "Sun, 15 Nov 2026 10:00:00 GMT"}
    whole = f"bytes 0-{(1 << 20) - 1}/{len(data)}"
    endpoint.answers[:] = [
        say(206, data[: 1 << 20], content_range=whole, **facts),
        say(206, data[1 << 20 : 2 << 20], length=2 << 20, **facts),
        say(206, data[2 << 20 :], **facts),
    ]
    wire = wire_to(endpoint)
    with open_remote(wire, "data", "k", "k") as file:
        assert file.info.size == len(data) and file.readall() == data
    ranges = [headers["range"] for _, _, headers in endpoint.seen]
    assert ranges[1:] == [f"bytes={1 << 20}-{len(data) - 1}", f"bytes={2 << 20}-{len(data) - 1}"]
    assert endpoint.seen[2][2]["if-match"] == '"e"'

    endpoint.seen.clear()
    endpoint.answers[:] = [
        say(200, data[: 1 << 20], length=len(data), **facts),
        say(206, data[1 << 20 :], **facts),
    ]
    store = ExternalStore(wire.address, KEYS)
    store._layout._terms = wire_module_terms()
    with (tmp_path / "out").open("w+b") as out:
        assert store.fetch_to_file(".code", "k", out.fileno()).size == len(data)
    assert (tmp_path / "out").read_bytes() == data
    # Replaced in between: from the start, and nothing of the old one is left.
    endpoint.answers[:] = [say(200, b"o" * 10, length=20, **facts), say(412), say(200, b"new", etag='"n"')]
    with (tmp_path / "out").open("w+b") as out:
        assert store.fetch_to_file(".code", "k", out.fileno()).etag == "n"
    assert (tmp_path / "out").read_bytes() == b"new"
    store.close()
    wire.close()


def wire_module_terms() -> Any:
    from trainshed.store.external.layout import Terms

    return Terms("plain", True)


def test_an_answer_that_is_no_s3_is_told() -> None:
    for body in (b"", b"<html>", b"hello", b'<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>'):
        with pytest.raises(Unavailable):
            parse_xml(body)
    assert parse_xml(b'<A xmlns="http://s3"><B>1</B></A>').findtext("B") == "1"


def test_a_host_that_is_away_is_told_and_new_keys_are_taken(endpoint: Any, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        closed = probe.getsockname()[1]
    wire = Wire(parse_place("s3://shed", endpoint=f"http://127.0.0.1:{closed}"), KEYS)
    with pytest.raises(Unavailable, match="cannot be reached"):
        wire.ask("GET", "x")

    keys = tmp_path / "keys.json"
    address = parse_place("s3://shed", endpoint=f"http://127.0.0.1:{endpoint.port}", keys=str(keys))
    wire = Wire(address)
    with pytest.raises(Unavailable, match="cannot be read"):
        wire.ask("GET", "x")
    endpoint.answers[:] = [say(403), say(200)]
    for name in ("old", "new"):
        keys.write_text(json.dumps({"access_key": name, "secret_key": "s"}))
        if name == "old":
            with pytest.raises(Unavailable, match="refuses"):
                wire.ask("GET", "x")
        else:
            wire.ask("GET", "x")
    assert [
        "old/" in endpoint.seen[0][2]["authorization"],
        "new/" in endpoint.seen[1][2]["authorization"],
    ] == [
        True,
        True,
    ]
    wire.close()


def test_addresses() -> None:
    address = parse_place(
        "s3://lab/a b/c/", endpoint="https://h:9000/", region="eu", keys="/home/x y/store.json"
    )
    assert address == Address("lab", "a b/c/", "https://h:9000", "eu", "/home/x y/store.json")
    assert parse_address(address.url) == address and address.place == "s3://lab/a b/c"
    assert address.base == "https://h:9000/lab"
    assert parse_place("s3://lab").base == "https://s3.us-east-1.amazonaws.com/lab"
    assert parse_place("s3://lab", endpoint="https://{bucket}.obs.example").base == "https://lab.obs.example"
    for wrong in (
        "lab",
        "s3://",
        "s3://a",
        "obs://lab",
        "s3://lab/../x",
        "s3://lab/a//b",
        "s3://lab?x=1",
        "s3://u:p@lab",
    ):
        with pytest.raises(InvalidInput):
            parse_place(wrong)
    for wrong in ("host", "ftp://h", "https://h/path", "https://user:hunter2@h"):
        with pytest.raises(InvalidInput) as caught:
            parse_place("s3://lab", endpoint=wrong)
        assert "hunter2" not in str(caught.value)
    assert "the-secret" not in repr(KEYS)
    # Opening asks nothing of the endpoint, and loads nothing but the standard library.
    open_store(address.url).close()
