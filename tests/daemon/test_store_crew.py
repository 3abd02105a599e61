"""Several processes of the object store: they join under load, share it, leave, and are killed."""

from __future__ import annotations

import hashlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.store_server import StoreServer, make_server, start_server

from trainshed.daemon.store_crew import choose_size

# Any load at all is much, and half a second without is long.
PROGRAM = """
import sys
from trainshed.api.obs.app import create_app
from trainshed.daemon.process import begin
from trainshed.daemon.store_crew import Pace, mate_command
from trainshed.daemon.store_server import serve_store
from trainshed.services.platform import open_platform

process = begin("store")
platform = open_platform(process.home, process.settings)
serve_store(
    create_app(platform),
    process.settings.host,
    process.settings.obs_port,
    process.say_ready,
    mate=mate_command(process.home.path),
    most=2,
    pace=Pace(look_seconds=0.1, busy=0.02, quiet=0.02, busy_looks=2, quiet_seconds=1.0),
)
"""
LARGE = 24 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreServer]:
    """A store whose second process joins at once."""
    server = make_server(tmp_path / "home")
    server.process.terminate()
    assert server.process.wait(90) == 0
    server.process = start_server(server.home, server.port, [sys.executable, "-c", PROGRAM])
    try:
        with server.http() as client:
            client.put("/buckets/data").raise_for_status()
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait(90)


def mates(store: StoreServer) -> list[int]:
    """The processes that the first one has started."""
    pid = store.process.pid
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def holds(pid: int, port: int) -> bool:
    """Whether a process has the server's end of the connection that comes from a port of ours."""
    inodes = {
        f"socket:[{fields[9]}]"
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if int((fields := line.split())[2].partition(":")[2], 16) == port
    }
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(os.readlink(link))
        except OSError:
            continue
    return bool(inodes & found)


def until(what: Callable[[], object], why: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, why
        time.sleep(0.02)


class Load:
    """Clients that upload small objects over connections they keep, and remember what was acknowledged."""

    def __init__(self, store: StoreServer, clients: int = 6) -> None:
        self.store = store
        self.acknowledged: dict[str, bytes] = {}
        self.failures: list[str] = []
        self.anew = 0
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._upload, args=(number,), daemon=True) for number in range(clients)
        ]
        for thread in self._threads:
            thread.start()

    def _upload(self, client: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.store.port, timeout=120)
        headers = {"Authorization": f"Bearer {self.store.token}"}
        count = 0
        while not self._is_over.is_set():
            key, body = f"{client}/{count}", os.urandom(20_000)
            try:
                connection.request("PUT", f"/_/v1/buckets/data/object?key={key}", body, headers)
                answer = connection.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
                connection.close()
                time.sleep(0.05)
                continue
            if answer.status < 300:
                self.acknowledged[key] = hashlib.sha256(body).digest()
            else:
                self.failures.append(f"{answer.status}")
            self.anew += answer.getheader("connection") == "close"
            count += 1
        connection.close()

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def check(self) -> None:
        """Everything that was acknowledged is there."""
        assert self.acknowledged
        with self.store.http() as client:
            for key, digest in self.acknowledged.items():
                assert (
                    hashlib.sha256(client.get("/buckets/data/object", params={"key": key}).content).digest()
                    == digest
                ), key


@pytest.mark.slow
def test_a_second_process_joins_under_load_and_leaves_when_it_is_quiet(store: StoreServer) -> None:
    load = Load(store)
    until(lambda: load.anew >= 2, "no client was asked to connect anew")
    (mate,) = mates(store)
    seen = len(load.acknowledged)
    until(lambda: len(load.acknowledged) > seen + 50, "the load does not go on")
    load.stop()
    assert load.failures == [], "nobody notices"
    until(lambda: mates(store) == [], "it does not leave")
    load.check()
    assert not Path(f"/proc/{mate}").exists()


@pytest.mark.slow
def test_a_download_from_a_process_that_leaves_ends_well(store: StoreServer) -> None:
    body = os.urandom(LARGE)
    with store.http() as client:
        client.put("/buckets/data/object", params={"key": "large"}, content=body).raise_for_status()
    load = Load(store, clients=2)
    until(lambda: mates(store) and load.anew, "no second process")
    (mate,) = mates(store)
    for _ in range(200):
        stream = socket.create_connection(("127.0.0.1", store.port), timeout=120)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        stream.sendall(
            f"GET /_/v1/buckets/data/object?key=large HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {store.token}\r\n\r\n".encode()
        )
        got = bytearray(stream.recv(1000))
        if holds(mate, stream.getsockname()[1]):
            break
        stream.close()
    else:
        raise AssertionError("the second process takes no connection")
    load.stop()
    # It is asked to leave, takes no new connection, and the download goes on.
    time.sleep(3)
    assert mates(store) == [mate]
    with store.http() as client:
        assert client.get("/buckets/data/object", params={"key": "large"}).content == body
    with stream:
        while len(got) < got.find(b"\r\n\r\n") + 4 + LARGE:
            piece = stream.recv(1 << 20)
            assert piece, "broken off"
            got += piece
    assert got.endswith(body)
    until(lambda: mates(store) == [], "it does not leave")


@pytest.mark.slow
def test_a_killed_mate_costs_nothing_that_was_acknowledged(store: StoreServer) -> None:
    load = Load(store)
    until(lambda: load.anew >= 2, "no second process")
    (mate,) = mates(store)
    os.kill(mate, signal.SIGKILL)
    seen = len(load.acknowledged)
    until(lambda: len(load.acknowledged) > seen + 50, "the load does not go on")
    load.stop()
    load.check()


@pytest.mark.slow
def test_mates_die_with_the_first_process(store: StoreServer) -> None:
    load = Load(store)
    until(lambda: load.anew >= 2, "no second process")
    (mate,) = mates(store)
    store.process.kill()
    store.process.wait(90)
    until(lambda: not Path(f"/proc/{mate}").exists(), "it lives on")
    store.process = start_server(store.home, store.port)
    seen = len(load.acknowledged)
    until(lambda: len(load.acknowledged) > seen + 20, "the load does not go on")
    load.stop()
    load.check()


@pytest.mark.slow
def test_a_stop_ends_all_and_breaks_no_request(store: StoreServer) -> None:
    load = Load(store)
    until(lambda: load.anew >= 2, "no second process")
    (mate,) = mates(store)
    store.process.send_signal(signal.SIGTERM)
    assert store.process.wait(90) == 0
    assert not Path(f"/proc/{mate}").exists()
    load.stop()
    # Connections that were between two requests are closed; what was under way has its answer.
    assert not [failure for failure in load.failures if "Incomplete" in failure]
    store.process = start_server(store.home, store.port)
    load.check()


def test_a_mate_that_cannot_start_is_not_tried_for_ever(tmp_path: Path) -> None:
    program = """
import asyncio, subprocess, sys
from pathlib import Path
from trainshed.api.obs.wire.server import Server, open_listeners
from trainshed.daemon.store_crew import Crew, Pace

async def work(request):
    request.answer(200, {"content-length": "0"})

async def main():
    server, listeners = Server(work), open_listeners("127.0.0.1", 0)
    await server.open(listeners)
    address = listeners[0].getsockname()
    clients = [await asyncio.open_connection(*address) for _ in range(2)]
    tries = Path(sys.argv[1])
    pace = Pace(look_seconds=0.05, busy=-1.0, busy_looks=1)
    crew = Crew(["sh", "-c", f"echo try >> {tries}; exit 3"], server, listeners, 4, pace)
    keeping = asyncio.create_task(crew.keep())
    async with asyncio.timeout(60):
        while not tries.exists() or not tries.read_text():
            await asyncio.sleep(0.05)
    await asyncio.sleep(2)
    keeping.cancel()
    await crew.stop(1)
    assert tries.read_text() == "try\\n", tries.read_text()
    assert await server.close(1) or True

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "tries")], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "ended with exit code 3; the next one not before 5 s" in done.stderr


def test_the_number_of_processes_follows_the_setting_and_the_cores() -> None:
    cores = len(os.sched_getaffinity(0))
    assert choose_size(3) == 3
    assert choose_size(-1) == 1
    assert choose_size(0) == max(1, min(cores // 2, 8))
