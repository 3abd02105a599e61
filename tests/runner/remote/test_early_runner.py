"""A runner's process that begins before there is a node to run: it waits, and ends when there is none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from trainshed.runner.remote.child import fork_child

# By a process of its own: what forks here has one thread.
PROGRAM = """
import os, signal, sys
from pathlib import Path
from trainshed.model.home import RunFolder
from trainshed.runner.remote.early_runner import EarlyRunner

runner = EarlyRunner()
what = sys.argv[1]
if what == "signal":
    os.kill(runner.pid, signal.SIGTERM)
if what == "kill":
    os.kill(runner.pid, signal.SIGKILL)
    os.waitid(os.P_PID, runner.pid, os.WEXITED | os.WNOWAIT)
    runner.begin(RunFolder(Path("/nonexistent")))
else:
    runner.forget()
print(os.waitstatus_to_exitcode(os.waitpid(runner.pid, 0)[1]))
print(signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""


def test_it_ends_when_there_is_nothing_to_run() -> None:
    assert run("nothing") == ["0", "False"]


def test_a_signal_waits_until_it_can_be_obeyed() -> None:
    # It did not die of it: what it would have run had heard it.
    assert run("signal") == ["0", "False"]


def test_one_that_is_dead_is_no_fault_of_who_begins() -> None:
    assert run("kill") == ["-9", "False"]


def test_a_held_signal_is_there_when_a_child_takes_it() -> None:
    child = fork_child(lambda: int(signal.sigwait((signal.SIGUSR1,))), held=(signal.SIGUSR1,))
    os.kill(child, signal.SIGUSR1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == signal.SIGUSR1


def run(what: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, what], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
