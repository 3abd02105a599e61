"""The store's HTTP server over raw sockets: what ordinary clients never send, and hostile ones do."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainshed.api.obs.desk import Desk
from trainshed.api.obs.exchange import Exchange
from trainshed.api.obs.wire.lobby import Limits
from trainshed.api.obs.wire.request import Request
from trainshed.api.obs.wire.server import Server, open_listeners

LARGE = 24 << 20


class Served:
    """A server in a thread of its own, with a handler that tells what it was sent."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.seen: list[tuple[str, str, bytes]] = []
        self.broken = threading.Semaphore(0)
        self.gate = threading.Event()
        self.waits = threading.Event()
        self._folder = folder
        self.port = 0
        self._limits = limits
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self.ended_in_time: bool | None = None
        self.stop_seconds = 5.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(90)

    @functools.cached_property
    def file(self) -> Path:
        """What is answered to /large."""
        path = self._folder / "large"
        path.write_bytes(os.urandom(LARGE))
        return path

    def _run(self) -> None:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._stop, self._loop = asyncio.Event(), asyncio.get_running_loop()
        with ThreadPoolExecutor(4) as executor:
            desk = Desk(4)

            async def handle(request: Request) -> None:
                await self._handle(Exchange(request, executor, desk))

            server = Server(handle, limits=self._limits)
            listeners = open_listeners("127.0.0.1", 0)
            self.port = listeners[0].getsockname()[1]
            await server.open(listeners)
            self._ready.set()
            await self._stop.wait()
            self.ended_in_time = await server.close(self.stop_seconds)

    async def _handle(self, exchange: Exchange) -> None:
        if exchange.path == "/refuse":
            await exchange.drain()
            await exchange.answer(403, {}, b"no")
            return
        if exchange.path == "/large":
            with self.file.open("rb") as file:
                await exchange.answer_file(200, {}, file, LARGE)
            return
        if exchange.path == "/inject":
            await exchange.answer(200, {"x-meta": "a\r\nset-cookie: b"}, b"")
            return
        if exchange.path == "/wait":
            self.waits.set()
            await exchange.in_thread(self.gate.wait, 90)
        try:
            body = b"".join([piece async for piece in exchange.pieces()])
        except BaseException:
            self.broken.release()
            raise
        self.seen.append((exchange.method, exchange.path, body))
        digest = hashlib.sha256(body).hexdigest()
        await exchange.answer(200, {"x-path": exchange.path}, f"{len(body)} {digest}".encode())

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=90)

    def stop(self) -> None:
        assert self._loop is not None and self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(90)
        assert not self._thread.is_alive()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server that takes little, but has patience: a client of a busy machine may be slow."""
    server = Served(tmp_path, Limits(head_bytes=8 << 10, linger_seconds=0.5, look_seconds=0.1))
    yield server
    server.gate.set()
    server.stop()


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Served]:
    """A server with a patience short enough to be met."""
    limits = Limits(
        head_seconds=0.6, idle_seconds=1.5, silent_seconds=1.0, linger_seconds=0.5, look_seconds=0.1
    )
    server = Served(tmp_path, limits)
    yield server
    server.stop()


def read_answer(stream: socket.socket, rest: bytes = b"") -> tuple[int, dict[str, str], bytes, bytes]:
    """Status, headers, body, and what came behind it."""
    data = rest
    while b"\r\n\r\n" not in data:
        piece = stream.recv(65536)
        if not piece:
            raise EOFError(data)
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    length = int(headers.get("content-length", "0"))
    while len(body) < length:
        piece = stream.recv(1 << 20)
        if not piece:
            raise EOFError(data)
        body += piece
    return int(lines[0].split()[1]), headers, body[:length], body[length:]


def told(body: bytes) -> bytes:
    """What the handler answers to a body."""
    return f"{len(body)} {hashlib.sha256(body).hexdigest()}".encode()


def is_closed(stream: socket.socket) -> bool:
    """Whether the server ends the connection, without another byte."""
    try:
        return stream.recv(1) == b""
    except ConnectionResetError:
        return True


def put(body: bytes, path: str = "/a", extra: str = "") -> bytes:
    return f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{extra}\r\n".encode() + body


REFUSED = {
    "a length and chunks": b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
    "the same length twice": b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
    "a list of lengths": b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 4, 4\r\n\r\nabcd",
    "a signed length": b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: +4\r\n\r\nabcd",
    "a negative length": b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "a hexadecimal length": b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x4\r\n\r\nabcd",
    "an endless length": b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n",
    "an empty length": b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: \r\n\r\n",
    "two encodings": b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "chunks that are not last": b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "a hidden encoding": b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "chunks of an old version": b"PUT / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: x\n\n",
    "a bare line feed": b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
    "an early end": b"GET / HTTP/1.1\r\nHost: x\n\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n",
    "a bare carriage return": b"GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n",
    "a folded line": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n Content-Length: 5\r\n\r\n",
    "a NUL": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "no version": b"GET /\r\nHost: x\r\n\r\n",
    "another version": b"GET / HTTP/2.0\r\nHost: x\r\n\r\n",
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "no path": b"GET path HTTP/1.1\r\nHost: x\r\n\r\n",
    "a strange scheme": b"GET ftp://x/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "another expectation": b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: tea\r\n\r\nabcd",
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_two_readers_could_read_differently_is_refused(served: Served, what: str) -> None:
    with served.connect() as stream:
        # A second request behind it must never be answered.
        stream.sendall(REFUSED[what] + b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
        status, headers, _, rest = read_answer(stream)
        assert status in (400, 417, 501, 505) and headers["connection"] == "close"
        assert rest == b"" and is_closed(stream)
    assert served.seen == []


def test_bodies_of_all_sizes_arrive_whole_on_one_connection(served: Served) -> None:
    with served.connect() as stream:
        for size in (0, 1, 1000, 100_000, 1 << 18, (1 << 18) + 1, 1 << 19, 3_000_001):
            body = os.urandom(size)
            stream.sendall(put(body))
            status, headers, answer, _ = read_answer(stream)
            assert (status, answer) == (200, told(body))
            assert "connection" not in headers and "date" in headers


def test_a_body_may_come_in_any_portions(served: Served) -> None:
    body = os.urandom(300)
    with served.connect() as stream:
        for byte in put(body):
            stream.sendall(bytes([byte]))
        assert read_answer(stream)[2] == told(body)


def test_requests_sent_ahead_are_answered_in_their_order(served: Served) -> None:
    bodies = [os.urandom(size) for size in (10, 0, 70_000, 300_000, 5)]
    with served.connect() as stream:
        data = b"".join(put(body, f"/{number}") for number, body in enumerate(bodies))
        sender = threading.Thread(target=stream.sendall, args=(data,))
        sender.start()
        rest = b""
        for number, body in enumerate(bodies):
            status, headers, answer, rest = read_answer(stream, rest)
            assert (status, headers["x-path"], answer) == (200, f"/{number}", told(body))
        sender.join(90)
    assert [path for _, path, _ in served.seen] == [f"/{number}" for number in range(5)]


def test_chunks_are_unframed_and_the_connection_goes_on(served: Served) -> None:
    body = os.urandom(1_500_000)
    head = b"PUT /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n"
    framed = b"".join(
        b"%x;note=1\r\n%s\r\n" % (len(part), part)
        for part in (body[at : at + 70_001] for at in range(0, len(body), 70_001))
    )
    with served.connect() as stream:
        for trailer in (b"", b"X-Sum: 1\r\n"):
            stream.sendall(head + framed + b"0\r\n" + trailer + b"\r\n")
            status, headers, answer, _ = read_answer(stream)
            assert (status, answer) == (200, told(body)) and "connection" not in headers


def test_behind_chunks_a_request_that_was_sent_ahead_is_not_answered(served: Served) -> None:
    with served.connect() as stream:
        stream.sendall(
            b"PUT /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
            + put(b"next")
        )
        status, headers, answer, rest = read_answer(stream)
        assert (status, answer, rest) == (200, told(b"abc"), b"")
        assert headers["connection"] == "close" and is_closed(stream)


@pytest.mark.parametrize(
    "chunk", [b"zz\r\n", b"-3\r\nabc\r\n", b"3\r\nabcdef\r\n", b"3\nabc\n", b"f" * 20 + b"\r\n"]
)
def test_broken_chunks_are_refused(served: Served, chunk: bytes) -> None:
    with served.connect() as stream:
        stream.sendall(b"PUT /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk)
        assert read_answer(stream)[0] == 400 and is_closed(stream)
    assert served.broken.acquire(timeout=90) and served.seen == []


def test_an_endless_trailer_is_refused(served: Served) -> None:
    with served.connect() as stream:
        stream.sendall(b"PUT /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ")
        stream.sendall(b"x" * 200_000)
        assert read_answer(stream)[0] == 400 and is_closed(stream)
    assert served.seen == []


def test_a_client_that_asks_first_is_told_to_go_on_only_when_its_body_is_wanted(served: Served) -> None:
    for size in (10, 400_000):
        body = os.urandom(size)
        head = f"PUT /e HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\nExpect: 100-continue\r\n\r\n"
        with served.connect() as stream:
            stream.sendall(head.encode())
            status, _, _, rest = read_answer(stream)
            assert (status, rest) == (100, b"")
            stream.sendall(body)
            assert read_answer(stream)[2] == told(body)
            stream.sendall(head.replace("/e", "/refuse").encode())
            status, headers, _, _ = read_answer(stream)
            assert status == 403 and headers["connection"] == "close" and is_closed(stream)


def test_an_old_client_is_never_told_to_go_on(served: Served) -> None:
    with served.connect() as stream:
        stream.sendall(b"PUT /o HTTP/1.0\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc")
        status, headers, answer, _ = read_answer(stream)
        assert (status, answer, headers["connection"]) == (200, told(b"abc"), "close")
        assert is_closed(stream)
    with served.connect() as stream:
        for _ in range(2):
            stream.sendall(b"GET /o HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            assert read_answer(stream)[1]["connection"] == "keep-alive"


def test_a_refused_body_does_not_drown_the_answer(served: Served) -> None:
    body = os.urandom(30 << 20)
    with served.connect() as stream:

        def send() -> None:
            try:
                stream.sendall(put(body, "/refuse"))
            except OSError:
                pass

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        status, headers, answer, _ = read_answer(stream)
        assert (status, answer, headers["connection"]) == (403, b"no", "close")
        assert is_closed(stream)
        sender.join(90)


def test_a_head_that_is_too_long_is_refused(served: Served) -> None:
    for head in (
        b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 3000 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 400 + b"\r\n",
    ):
        with served.connect() as stream:
            stream.sendall(head)
            assert read_answer(stream)[0] == 431 and is_closed(stream)
    assert served.seen == []


def test_a_head_that_never_ends_is_given_up(hasty: Served) -> None:
    with hasty.connect() as stream:
        began = time.monotonic()
        stream.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        status = 0
        while time.monotonic() < began + 90 and not status:
            # A byte now and then does not make it any better.
            try:
                stream.sendall(b"a")
                stream.settimeout(0.1)
                status = read_answer(stream)[0]
            except TimeoutError:
                continue
        assert status == 408


def test_a_silent_connection_is_closed(hasty: Served) -> None:
    with hasty.connect() as used:
        used.sendall(put(b"a"))
        assert read_answer(used)[0] == 200
        with hasty.connect() as idle, hasty.connect() as halfway:
            halfway.sendall(put(b"a" * 400_000)[:-1])
            assert is_closed(idle) and is_closed(used) and is_closed(halfway)
    assert hasty.broken.acquire(timeout=90)


@pytest.mark.parametrize("size", [1000, 400_000])
def test_a_body_that_breaks_off_is_no_body(served: Served, size: int) -> None:
    for ending in ("close", "half", "reset"):
        stream = served.connect()
        stream.sendall(put(os.urandom(size))[:-1])
        if ending == "half":
            stream.shutdown(socket.SHUT_WR)
            assert is_closed(stream)
        elif ending == "reset":
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        stream.close()
        if size > 1 << 18:
            assert served.broken.acquire(timeout=90)
    assert served.seen == []


def test_a_client_that_ends_its_half_is_answered(served: Served) -> None:
    for path in ("/a", "/wait"):
        with served.connect() as stream:
            stream.sendall(put(b"abc", path))
            stream.shutdown(socket.SHUT_WR)
            if path == "/wait":
                time.sleep(0.1)
                served.gate.set()
            status, _, answer, _ = read_answer(stream)
            assert (status, answer) == (200, told(b"abc")) and is_closed(stream)


def test_a_large_file_arrives_whole_at_fast_and_slow_clients(served: Served) -> None:
    expected = served.file.read_bytes()
    for pause in (0.0, 0.02):
        with served.connect() as stream:
            for _ in range(2 if not pause else 1):
                stream.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
                data = b""
                while len(data.partition(b"\r\n\r\n")[2]) < LARGE:
                    data += stream.recv(1 << 20)
                    time.sleep(pause)
                assert data.partition(b"\r\n\r\n")[2] == expected


def test_a_client_that_takes_nothing_is_given_up(hasty: Served) -> None:
    assert hasty.file.exists()
    with hasty.connect() as stream:
        stream.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        stream.recv(1000)
        time.sleep(2.5)
        with pytest.raises((EOFError, ConnectionError)):
            read_answer(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n")


def test_answers_to_head_have_no_body(served: Served) -> None:
    with served.connect() as stream:
        stream.sendall(b"HEAD /h HTTP/1.1\r\nHost: x\r\n\r\n" + put(b"abc"))
        data = b""
        while data.count(b"HTTP/1.1 200") < 2 or not data.endswith(told(b"abc")):
            data += stream.recv(1000)
        assert data.split(b"\r\n\r\n")[1].startswith(b"HTTP/1.1 200")


def test_no_header_of_an_answer_can_carry_another(served: Served) -> None:
    with served.connect() as stream:
        stream.sendall(b"GET /inject HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"set-cookie" not in stream.recv(10_000)


def test_a_proxy_may_name_the_whole_address(served: Served) -> None:
    with served.connect() as stream:
        stream.sendall(b"GET http://other.example/b%2Fc?d HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        status, headers, _, _ = read_answer(stream)
        assert (status, headers["x-path"]) == (200, "/b%2Fc") and is_closed(stream)


def test_an_offer_of_another_protocol_is_ignored(served: Served) -> None:
    with served.connect() as stream:
        extra = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
        for _ in range(2):
            stream.sendall(put(b"abc", extra=extra))
            assert read_answer(stream)[2] == told(b"abc")


def test_a_stop_lets_requests_end_and_breaks_off_what_does_not(tmp_path: Path) -> None:
    for seconds, in_time in ((60.0, True), (0.3, False)):
        served = Served(tmp_path, Limits())
        served.stop_seconds = seconds
        with served.connect() as idle, served.connect() as busy:
            idle.sendall(put(b"a"))
            assert read_answer(idle)[0] == 200
            busy.sendall(put(b"abc", "/wait"))
            assert served.waits.wait(90)
            stopping = threading.Thread(target=served.stop)
            stopping.start()
            assert is_closed(idle)
            if in_time:
                with pytest.raises(OSError):
                    served.connect()
                served.gate.set()
                status, headers, answer, _ = read_answer(busy)
                assert (status, answer, headers["connection"]) == (200, told(b"abc"), "close")
            assert is_closed(busy)
            served.gate.set()
            stopping.join(90)
            assert served.ended_in_time is in_time


def test_hundreds_at_once(served: Served) -> None:
    def talk(number: int) -> bool:
        body = os.urandom(number * 137)
        with served.connect() as stream:
            for _ in range(3):
                stream.sendall(put(body))
                if read_answer(stream)[2] != told(body):
                    return False
        return True

    work: Callable[[int], bool] = talk
    with ThreadPoolExecutor(50) as pool:
        assert all(pool.map(work, range(300)))


def test_an_understudy_answers_while_the_loop_is_stalled(tmp_path: Path) -> None:
    stalled, over = threading.Event(), threading.Event()

    async def handle(request: Request) -> None:
        if request.head.path == "/stall":
            stalled.set()
            over.wait(90)  # On the loop's own thread, as a disk that hangs would.
        request.answer(200, {"content-length": "0"})

    port, stop, loop = [0], asyncio.Event(), list[asyncio.AbstractEventLoop]()
    ready = threading.Event()

    async def serve() -> None:
        server = Server(handle, limits=Limits(look_seconds=0.05), patience=3)
        loop.append(asyncio.get_running_loop())
        listeners = open_listeners("127.0.0.1", 0)
        port[0] = listeners[0].getsockname()[1]
        await server.open(listeners)
        ready.set()
        await stop.wait()
        await server.close(5)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(90)

    def ask(path: str) -> int:
        with socket.create_connection(("127.0.0.1", port[0]), timeout=90) as stream:
            stream.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            return read_answer(stream)[0]

    assert ask("/healthz") == 200
    with socket.create_connection(("127.0.0.1", port[0]), timeout=90) as caught:
        caught.sendall(b"GET /stall HTTP/1.1\r\nHost: x\r\n\r\n")
        assert stalled.wait(90)
        assert ask("/healthz") == 503 and ask("/data/key") == 503
        over.set()
        assert read_answer(caught)[0] == 200
    until, status = time.monotonic() + 90, 0
    while status != 200 and time.monotonic() < until:
        status = ask("/healthz")
    assert status == 200
    loop[0].call_soon_threadsafe(stop.set)
    thread.join(90)
    assert not thread.is_alive()
