"""Telling a command that only sleeps from one that works, on real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from trainshed.runner.hold_watch import HoldWatch, only_sleeps


@contextmanager
def running(script: str, *, until: str) -> Iterator[int]:
    """A shell below a first process, as a command is below a sandbox's init; yields that one's pid."""
    first = subprocess.Popen(
        ["bash", "-c", f"bash -c {script!r} & wait"], start_new_session=True, stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 90
        while until not in _names(first.pid):
            assert time.monotonic() < deadline, _names(first.pid)
            time.sleep(0.02)
        yield first.pid
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait(90)


def _names(group: int) -> list[str]:
    listed = subprocess.run(
        ["ps", "-o", "args=", "-g", str(group)], capture_output=True, text=True, timeout=10
    )
    return [line.strip() for line in listed.stdout.splitlines()]


@pytest.mark.parametrize(
    ("script", "until"),
    [
        ("true && sleep 1000", "sleep 1000"),
        ("sleep 1000 | tee /dev/null", "sleep 1000"),
        ("sleep 1000 & sleep 1001 & wait", "sleep 1001"),
        ('env A=1 bash -c "cd / && sleep 1000 && true"', "sleep 1000"),
    ],
)
def test_a_command_that_only_sleeps(script: str, until: str) -> None:
    with running(script, until=until) as pid:
        assert only_sleeps(pid)


@pytest.mark.parametrize(
    ("script", "until"),
    [
        ('sleep 1000 & python3 -c "import time; time.sleep(1000)"', "sleep 1000"),
        ("while true; do :; done", "bash -c while true; do :; done"),
        ('sleep 1000 & perl -e "sleep 1000"; wait', "perl -e sleep 1000"),
    ],
)
def test_a_command_that_works_is_not_held(script: str, until: str) -> None:
    with running(script, until=until) as pid:
        time.sleep(0.2)
        assert not only_sleeps(pid)


def test_a_command_without_processes_does_not_sleep() -> None:
    with running("sleep 1000", until="sleep 1000") as pid:
        assert not only_sleeps(2**22 + 1)
        watch = HoldWatch(pid, is_wanted=True)
        assert watch.look(1.0) and watch.held_since
        assert not watch.look(2.0), "it looks only now and then"
        assert not HoldWatch(pid, is_wanted=False).look(1.0)
