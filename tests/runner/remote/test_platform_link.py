"""What a node says while it waits to begin."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from trainshed.model.errors import HostUnfit
from trainshed.runner.remote.platform_link import PlatformLink
from trainshed.store.outage import Patience

FACTS = {"host": "n1", "address": "10.0.0.1"}


class Gateway(ThreadingHTTPServer):
    """Answers as it is told to, and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, dict[str, Any], float]] = []
        self.answers: list[tuple[int, dict[str, Any]]] = []


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Gateway)
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server.asked.append((self.path, body, time.time()))
        status, answer = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    server = Gateway()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def link(gateway: Gateway) -> Iterator[PlatformLink]:
    link = PlatformLink(f"http://127.0.0.1:{gateway.server_port}", "t", 0, "ab" * 8, patience=Patience(30))
    yield link
    link.close()


def test_after_an_outage_the_clock_is_that_of_the_last_try(gateway: Gateway, link: PlatformLink) -> None:
    gateway.answers = [(503, {}), (503, {}), (503, {}), (200, {"launch": {}})]
    assert link.check_in(FACTS) == {"launch": {}}
    # A clock that seemed to be behind by the length of the outage would shift all times of the job.
    assert len(gateway.asked) == 4
    before = 0.0
    for _, body, now in gateway.asked:
        # Read after the try before had been heard, and before this one was.
        assert before <= body["clock"] <= now
        before = now


def test_peers_that_do_not_come_are_not_waited_for_for_ever(gateway: Gateway, link: PlatformLink) -> None:
    gateway.answers = [(202, {"waiting_for": [1]})]
    with pytest.raises(HostUnfit, match=r"\[1\]") as told:
        link.check_in(FACTS, peers_seconds=0.5)
    assert told.value.code == "peers_missing"
    gateway.answers = [(204, {})]
    link.tell_failure(told.value, "n1")
    path, body, _ = gateway.asked[-1]
    assert path.endswith("/failed-start") and body["code"] == "peers_missing" and body["host"] == "n1"


def test_a_stop_ends_the_wait(gateway: Gateway, link: PlatformLink) -> None:
    gateway.answers = [(202, {"waiting_for": [1], "stop": {"reason": "enough"}})]
    with pytest.raises(HostUnfit, match="enough") as told:
        link.check_in(FACTS)
    assert told.value.code == "stopped"


def test_a_machine_that_does_not_go_together_with_the_others_says_so(
    gateway: Gateway, link: PlatformLink
) -> None:
    said = {"error": {"code": "addresses", "message": "n1 and n2 are one machine.", "hint": "Leave one out."}}
    gateway.answers = [(400, said)]
    with pytest.raises(HostUnfit, match="n1 and n2 are one machine") as told:
        link.check_in(FACTS)
    assert (told.value.code, told.value.hint) == ("addresses", "Leave one out.")
