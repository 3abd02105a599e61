"""Processes that are warned of their time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from trainshed.runner.time_warning import TimeWarning, find_listeners

# Whole lines at once: two processes write to one pipe.
LISTENER = """
import os, signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"told\\n"))
if "fork" in sys.argv and not os.fork():
    os.write(1, b"forked\\n")
os.write(1, b"ready\\n")
time.sleep(60)
"""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    begun: list[subprocess.Popen[str]] = []

    def begin(*command: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        begun.append(child)
        return child

    yield begin
    for child in begun:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def lines(child: subprocess.Popen[str], count: int) -> list[str]:
    assert child.stdout is not None
    return [child.stdout.readline().split()[0] for _ in range(count)]


def test_who_handles_the_signal_gets_it_once_and_nobody_else(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    said: list[str] = []
    deaf = start("bash", "-c", f"{sys.executable} -c '{LISTENER}'; echo after")
    forking = start(sys.executable, "-c", LISTENER, "fork")
    assert lines(deaf, 1) == ["ready"] and sorted(lines(forking, 3)) == ["forked", "ready", "ready"]
    warning = TimeWarning(os.getpid(), "USR1", 100.0, 130.0, said.append)
    warning.look(99.9)
    assert not said
    warning.look(101.0)
    # The shell lives, and a copy that was only forked is not told beside its parent.
    assert said == ["the time limit is reached in 29 s: SIGUSR1 sent to 2 processes"]
    assert lines(deaf, 1) == ["told"] and lines(forking, 1) == ["told"]
    late = start(sys.executable, "-c", LISTENER)
    assert lines(late, 1) == ["ready"]
    for now in (101.2, 103.0, 105.0):
        warning.look(now)
    assert said[1:] == ["the time limit is reached in 27 s: SIGUSR1 sent to 1 process more"]
    assert lines(late, 1) == ["told"]
    time.sleep(0.2)
    assert all(child.poll() is None for child in (deaf, forking, late))
    assert len(find_listeners(os.getpid(), signal.SIGUSR1)) == 3
    assert not find_listeners(os.getpid(), signal.SIGUSR2)


def test_nobody_who_listens_is_said_once() -> None:
    said: list[str] = []
    warning = TimeWarning(os.getpid(), "USR2", 1.0, 1.5, said.append)
    for now in (1.0, 2.0, 3.0):
        warning.look(now)
    assert said == ["the time limit is reached in 0 s: no process handles SIGUSR2"]
    off = TimeWarning(os.getpid(), "USR1", None, 0.0, said.append)
    off.look(1e9)
    assert len(said) == 1
