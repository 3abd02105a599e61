"""A node elsewhere is entered by a call back: both ends of it, with a real server between them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainshed.client.tunnel import Tunnel
from trainshed.client.tunnel import open_tunnel as open_client_tunnel
from trainshed.model.errors import Conflict, NotFound, Unavailable
from trainshed.model.home import RunFolder
from trainshed.runner.remote.platform_link import PlatformLink
from trainshed.runner.remote.ssh_calls import SshCalls
from trainshed.services import ssh_tunnels
from trainshed.services.attempt_tokens import attempt_token
from trainshed.services.runner_mirror import Claim, Mirror
from trainshed.services.ssh_access import SshGate
from trainshed.services.ssh_tunnels import answer_tunnel, open_tunnel, wanted_tunnels

NONCE = "ab" * 16
HUNG_UP = "The node hung up: the job's processes there have ended, or its ssh server has."
ENDED = "The job's processes on this node have ended."
# What `find_gate` reads of a node's plan.
LAUNCH = {
    "job_name": "x", "workspace_id": "w", "attempt": 1, "node_index": 0, "node_count": 1, "world_size": 1,
    "code_bucket": "", "code_prefix": "", "code_path": "", "processes": [], "ssh_port": 22,
    "environment": {"engine": "", "python": "3.11"},
}  # fmt: skip
# A node's courier, and in place of its sandbox something that answers, or dies at the moment that is asked for.
NODE = """
import os, socket, sys, threading, time
from pathlib import Path
from trainshed.model.home import RunFolder
from trainshed.runner.remote.platform_link import PlatformLink
from trainshed.runner.remote.ssh_calls import SshCalls
url, token, nonce, folder, moment = sys.argv[1:]
inside = RunFolder(Path(folder))
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind(str(inside.ssh_gate))
listener.listen()
def serve(connection):
    if moment == "before-banner":
        os._exit(9)
    connection.sendall(b"banner")
    while data := connection.recv(65536):
        if moment == "middle":
            os._exit(9)
        if moment == "sending":
            threading.Timer(0.3, os._exit, (9,)).start()
            while True:
                connection.sendall(bytes(65536))
        connection.sendall(data)
        if moment == "server-alone":
            connection.close()
            return
def accept():
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
threading.Thread(target=accept, daemon=True).start()
link = PlatformLink(url, token, 0, nonce)
calls = SshCalls(inside, link.call_back)
while True:
    names = link.report()["ssh"]
    if names and moment == "before-call":
        os._exit(9)
    calls.answer(names)
    time.sleep(0.05)
"""


@pytest.fixture
def node(api: Any, submit: Callable[..., str]) -> tuple[RunFolder, PlatformLink, SshGate]:
    """A node that has checked in: the platform's copy of its folder, its way to the platform, and its gate."""
    job_id = submit()
    api.begin_attempt(job_id)
    mirror = Mirror(api.home, job_id, 1, 0)
    mirror.claim(Claim(0, NONCE, "n1", "10.0.0.1"))
    mirror.folder.launch.write_text(json.dumps({"job_id": job_id, **LAUNCH}))
    mirror.folder.status.write_text(json.dumps({"stage": "training"}))
    mirror.note_heard()
    link = PlatformLink(api.url, attempt_token(api.platform, job_id, 1), 0, NONCE)
    gate = SshGate(api.job_row(job_id), mirror.folder, None, is_elsewhere=True)  # type: ignore[arg-type]
    return mirror.folder, link, gate


def serve_echo(folder: RunFolder) -> socket.socket:
    """Stands for the way into the sandbox: says back what it is told, twice."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(folder.ssh_gate))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                while data := connection.recv(65536):
                    connection.sendall(data * 2)

    threading.Thread(target=serve, daemon=True).start()
    return listener


def enter(gate: SshGate) -> socket.socket:
    connection = asyncio.run(open_tunnel(gate))
    connection.setblocking(True)
    return connection


def call_in_background(gate: SshGate) -> tuple[threading.Thread, list[socket.socket]]:
    found: list[socket.socket] = []
    thread = threading.Thread(target=lambda: found.append(enter(gate)))
    thread.start()
    deadline = time.monotonic() + 90
    while not wanted_tunnels(gate.folder):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return thread, found


def is_refused(link: PlatformLink, name: str) -> bool:
    """Whether a call back is closed at once, or not even opened."""
    try:
        call = link.call_back(name)
    except ConnectionError:
        return True
    try:
        return call.receive() == b""
    finally:
        call.close()


def test_bytes_go_both_ways_as_they_are(node: Any, tmp_path: Any) -> None:
    folder, link, gate = node
    inside = RunFolder(tmp_path)
    with serve_echo(inside) as listener:
        thread, found = call_in_background(gate)
        # A report says who waits, again and again until it is answered: one call back is enough.
        names = link.report()["ssh"]
        calls = SshCalls(inside, link.call_back)
        calls.answer(names)
        calls.answer(names)
        thread.join(90)
        [connection] = found
        assert wanted_tunnels(folder) == []
        data = os.urandom(300_000)
        back = bytearray()
        with connection:
            sender = threading.Thread(target=lambda: connection.sendall(data))
            sender.start()
            while len(back) < 2 * len(data):
                piece = connection.recv(65536)
                assert piece
                back += piece
            sender.join()
        # What was said twice comes in pieces: all bytes are there, each piece after its own copy.
        assert sorted(back) == sorted(data * 2)
        listener.shutdown(socket.SHUT_RDWR)
    link.close()


def test_who_is_not_the_nodes_process_gets_nothing(api: Any, node: Any) -> None:
    folder, link, gate = node
    token = attempt_token(api.platform, gate.job.id, 1)
    thread, found = call_in_background(gate)
    [name] = wanted_tunnels(folder)
    for stranger in (
        PlatformLink(api.url, token, 0, "cd" * 16),
        PlatformLink(api.url, f"{token}x", 0, NONCE),
        PlatformLink(api.url, api.token, 0, NONCE),
    ):
        assert is_refused(stranger, name)
        stranger.close()
    for wrong in ("0" * 24, "..%2F..%2Fclaim.json", name.upper() if name.upper() != name else "f" * 24):
        assert is_refused(link, wrong)
    assert wanted_tunnels(folder) == [name] and not found
    socket_of_it = answer_tunnel(folder, name)
    thread.join(90)
    assert len(found) == 1
    socket_of_it.close()
    found[0].close()
    link.close()


def test_a_node_that_does_not_call_back_is_told_apart(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, link, gate = node
    monkeypatch.setattr(ssh_tunnels, "_CALL_SECONDS", 0.2)
    with pytest.raises(Unavailable, match="did not call back"):
        enter(gate)
    assert wanted_tunnels(folder) == []
    # A platform that was killed leaves its socket; whoever answers it takes it away.
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    (folder.path / "ssh-wanted").mkdir(exist_ok=True)
    descriptor = os.open(folder.path / "ssh-wanted", os.O_PATH)
    left.bind(f"/proc/self/fd/{descriptor}/{'e' * 24}")
    left.close()
    os.close(descriptor)
    assert wanted_tunnels(folder) == ["e" * 24]
    with pytest.raises(NotFound):
        answer_tunnel(folder, "e" * 24)
    assert wanted_tunnels(folder) == []
    link.close()


@contextlib.contextmanager
def start_node(api: Any, gate: SshGate, folder: Path, moment: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A node's process, which dies at that moment."""
    token = attempt_token(api.platform, gate.job.id, 1)
    process = subprocess.Popen([sys.executable, "-c", NODE, api.url, token, NONCE, str(folder), moment])
    try:
        yield process
    finally:
        process.kill()
        process.wait(90)


def client_of(api: Any, gate: SshGate) -> Tunnel:
    """What `trainshed ssh-proxy` opens. Whoever waits in vain is told that the connection was cut."""
    tunnel = open_client_tunnel(api.url, api.token, f"/api/v1/jobs/{gate.job.id}/ssh/0")
    tunnel._connection.settimeout(90)
    return tunnel


def read_to_end(tunnel: Tunnel) -> bytes:
    data = b""
    while piece := tunnel.receive():
        data += piece
    tunnel.close()
    return data


@pytest.mark.parametrize("moment", ["before-banner", "middle", "sending", "server-alone"])
def test_a_node_that_dies_in_a_session_ends_it(api: Any, node: Any, tmp_path: Path, moment: str) -> None:
    _, link, gate = node
    with start_node(api, gate, tmp_path, moment):
        tunnel = client_of(api, gate)
        data = b""
        # A node that dies takes along what it has not sent yet: it hears of nothing to die of before its banner is here.
        while moment != "before-banner" and len(data) < len(b"banner"):
            piece = tunnel.receive()
            assert piece, tunnel.reason
            data += piece
        tunnel.send(b"hello")
        data += read_to_end(tunnel)
    assert tunnel.reason == HUNG_UP
    assert data == b"" if moment == "before-banner" else data.startswith(b"banner")
    assert moment != "server-alone" or data == b"bannerhello"
    link.close()


def test_who_waits_for_a_node_is_told_that_it_ended(api: Any, node: Any, tmp_path: Path) -> None:
    folder, link, gate = node
    found: list[Tunnel] = []
    with start_node(api, gate, tmp_path, "before-call") as process:
        caller = threading.Thread(target=lambda: found.append(client_of(api, gate)))
        caller.start()
        process.wait(90)
        folder.status.write_text(json.dumps({"stage": "ended", "ending": {"outcome": "failed"}}))
        caller.join(90)
    [tunnel] = found
    assert read_to_end(tunnel) == b"" and tunnel.reason == ENDED
    with pytest.raises(Conflict, match="have ended"):
        enter(gate)
    assert wanted_tunnels(folder) == []
    link.close()


def test_a_node_whose_processes_have_gone_hangs_up_at_once(node: Any, tmp_path: Path) -> None:
    _, link, gate = node
    inside = RunFolder(tmp_path)
    calls = SshCalls(inside, link.call_back)
    # Before its gate is there, a node lets its callers wait.
    thread, found = call_in_background(gate)
    calls.answer(wanted_tunnels(gate.folder))
    with serve_echo(inside) as listener:
        calls.answer(wanted_tunnels(gate.folder))
        thread.join(90)
        found[0].close()
        listener.shutdown(socket.SHUT_RDWR)
    # One whose runner was killed leaves its gate, and nobody is behind it.
    for is_left in (True, False):
        if not is_left:
            inside.ssh_gate.unlink()
        thread, found = call_in_background(gate)
        calls.answer(wanted_tunnels(gate.folder))
        thread.join(90)
        found[0].settimeout(90)
        assert found[0].recv(1) == b""
        found[0].close()
    link.close()


def test_a_node_that_is_not_heard_any_more_ends_its_sessions(api: Any, node: Any, tmp_path: Path) -> None:
    folder, link, gate = node
    with start_node(api, gate, tmp_path) as process:
        tunnel = client_of(api, gate)
        assert tunnel.receive() == b"banner"
        # As when its machine has lost power: nobody closes anything.
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        long_ago = time.time() - 300
        is_over = threading.Event()

        def age() -> None:
            # A report may still be on its way through the platform.
            while not is_over.wait(0.05):
                os.utime(folder.heard, (long_ago, long_ago))

        aging = threading.Thread(target=age)
        aging.start()
        try:
            assert read_to_end(tunnel) == b""
        finally:
            is_over.set()
            aging.join()
        assert tunnel.reason.startswith("The node has not been heard for")
        # One that has ended meanwhile is told so.
        folder.status.unlink()
        assert ssh_tunnels.find_end(gate) == ENDED
    link.close()


def test_many_who_wait_do_not_keep_each_other_from_entering(api: Any, node: Any, tmp_path: Path) -> None:
    folder, link, gate = node
    found: list[bytes] = []

    def call() -> None:
        tunnel = client_of(api, gate)
        found.append(tunnel.receive())
        tunnel.close()

    callers = [threading.Thread(target=call) for _ in range(16)]
    for caller in callers:
        caller.start()
    deadline = time.monotonic() + 90
    # They all wait before the node comes.
    while len(wanted_tunnels(folder)) < len(callers):
        assert time.monotonic() < deadline, wanted_tunnels(folder)
        time.sleep(0.02)
    with start_node(api, gate, tmp_path):
        for caller in callers:
            caller.join(90)
    assert found == [b"banner"] * len(callers)
    link.close()


def test_a_platform_that_is_killed_ends_a_session_and_opens_the_next(
    api: Any, node: Any, tmp_path: Path, support: Any
) -> None:
    folder, link, gate = node
    inside = RunFolder(tmp_path)
    calls = SshCalls(inside, link.call_back)
    with serve_echo(inside) as listener:
        tunnels: list[Tunnel] = []

        def call() -> None:
            tunnels.append(client_of(api, gate))

        for is_killed in (True, False):
            caller = threading.Thread(target=call)
            caller.start()
            support.wait_until(lambda: wanted_tunnels(folder), seconds=90)
            calls.answer(wanted_tunnels(folder))
            caller.join(90)
            tunnel = tunnels.pop()
            tunnel.send(b"x")
            assert tunnel.receive() == b"xx"
            if not is_killed:
                tunnel.close()
                break
            api.kill()
            assert read_to_end(tunnel) == b""
            assert tunnel.reason == "The connection to the platform was cut."
            # The node's end of it is closed as well.
            support.wait_until(lambda: not calls._open, seconds=90)
            api.start()
        listener.shutdown(socket.SHUT_RDWR)
    link.close()
