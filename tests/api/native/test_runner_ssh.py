"""A node elsewhere is entered by a call back: both ends of it, with a real server between them."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from trainshed.model.errors import NotFound, Unavailable
from trainshed.model.home import RunFolder
from trainshed.runner.remote.platform_link import PlatformLink
from trainshed.runner.remote.ssh_calls import SshCalls
from trainshed.services import ssh_tunnels
from trainshed.services.attempt_tokens import attempt_token
from trainshed.services.runner_mirror import Claim, Mirror
from trainshed.services.ssh_access import SshGate
from trainshed.services.ssh_tunnels import answer_tunnel, open_tunnel, wanted_tunnels

NONCE = "ab" * 16


@pytest.fixture
def node(api: Any, submit: Callable[..., str]) -> tuple[RunFolder, PlatformLink, SshGate]:
    """A node that has checked in: the platform's copy of its folder, its way to the platform, and its gate."""
    job_id = submit()
    api.begin_attempt(job_id)
    mirror = Mirror(api.home, job_id, 1, 0)
    mirror.claim(Claim(0, NONCE, "n1", "10.0.0.1"))
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


def call_in_background(gate: SshGate) -> tuple[threading.Thread, list[socket.socket]]:
    found: list[socket.socket] = []
    thread = threading.Thread(target=lambda: found.append(open_tunnel(gate)))
    thread.start()
    deadline = time.monotonic() + 10
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
        thread.join(10)
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
    thread.join(10)
    assert len(found) == 1
    socket_of_it.close()
    found[0].close()
    link.close()


def test_a_node_that_does_not_call_back_is_told_apart(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, link, gate = node
    monkeypatch.setattr(ssh_tunnels, "_CALL_SECONDS", 0.2)
    with pytest.raises(Unavailable, match="did not call back"):
        open_tunnel(gate)
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
