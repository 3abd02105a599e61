"""The fork server and its client, over a real socket with real forks."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainshed.daemon.home_folder import make_home
from trainshed.engines.local.fork_request import open_address, request_fork
from trainshed.model.home import Home

SERVER = """
import os, sys, time
from pathlib import Path
from trainshed.daemon.fork_server import ForkServer
from trainshed.model.home import Home
def run(folder, lock):
    print("to the runner's log", flush=True)
    (folder / "ran").open("a").write(f"{os.getpid()} {os.getsid(0)} {os.getppid()}\\n")
    if (folder / "raise").exists():
        raise RuntimeError("the runner broke")
    while not (folder / "finish").exists():
        time.sleep(0.02)
server = ForkServer(Home(Path(sys.argv[1])), run)
print("listening", flush=True)
server.serve_forever()
"""


class Forks:
    """A fork server in a process of its own, and folders for its runners."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Longer than a socket's address may be.
        self.home = make_home(folder / ("long-" * 20) / ("name-" * 20) / "home")
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(self.home.path)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "listening\n"

    def make_run(self, name: str) -> tuple[Path, int]:
        folder = self.folder / name
        folder.mkdir()
        lock = os.open(folder / "runner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return folder, lock


@pytest.fixture
def forks(tmp_path: Path) -> Iterator[Forks]:
    forks = Forks(tmp_path)
    yield forks
    for folder in tmp_path.iterdir():
        if (folder / "runner.lock").exists():
            (folder / "finish").touch()
    forks.process.kill()
    forks.process.communicate(timeout=90)


def is_locked(folder: Path) -> bool:
    descriptor = os.open(folder / "runner.lock", os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def test_a_runner_is_detached_holds_the_lock_and_outlives_the_server(forks: Forks, support: Any) -> None:
    folder, lock = forks.make_run("run")
    pid = request_fork(forks.home, folder, lock)
    os.close(lock)
    assert pid is not None
    words = support.wait_until(lambda: (folder / "ran").exists() and (folder / "ran").read_text().split())
    assert int(words[0]) == pid
    assert int(words[1]) not in (os.getsid(0), os.getsid(forks.process.pid))
    assert int(words[2]) != forks.process.pid
    assert is_locked(folder)
    os.kill(forks.process.pid, signal.SIGKILL)
    forks.process.wait(60)
    assert support.is_alive(pid)
    assert is_locked(folder)
    (folder / "finish").touch()
    support.wait_until(lambda: not is_locked(folder), what="the lock is free")
    assert (folder / "runner.log").read_text() == "to the runner's log\n"


def test_without_a_server_the_answer_is_none(forks: Forks, tmp_path: Path) -> None:
    folder, lock = forks.make_run("run")
    forks.process.kill()
    forks.process.wait(60)
    assert request_fork(forks.home, folder, lock) is None
    assert request_fork(Home(tmp_path / "nowhere"), folder, lock) is None
    os.close(lock)
    assert not (folder / "ran").exists()


def test_a_caller_that_hangs_up_gets_no_run(forks: Forks, support: Any) -> None:
    folder, lock = forks.make_run("run")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        with open_address(forks.home.fork_socket) as address:
            connection.connect(address)
        socket.send_fds(connection, [os.fsencode(folder)], [lock])
        pid = int(connection.recv(32))
    os.close(lock)
    support.wait_until(lambda: not support.is_alive(pid), what="the unwanted runner is gone")
    assert not (folder / "ran").exists()
    assert not is_locked(folder)


def test_nonsense_does_not_stop_the_server(forks: Forks, support: Any) -> None:
    for message in (b"no descriptor", b"x" * 16000):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            with open_address(forks.home.fork_socket) as address:
                connection.connect(address)
            connection.send(message)
            assert connection.recv(32) == b""
    folder, lock = forks.make_run("run")
    (folder / "raise").touch()
    pid = request_fork(forks.home, folder, lock)
    os.close(lock)
    assert pid is not None
    support.wait_until(lambda: not is_locked(folder), what="the lock is free")
    assert "the runner broke" in (folder / "runner.log").read_text()
    other, lock = forks.make_run("other")
    assert request_fork(forks.home, other, lock) is not None
    os.close(lock)
