"""The supervisor with real child processes that do as little as possible."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainshed.daemon.home_folder import HomeLock, find_holder, make_home
from trainshed.daemon.supervisor import Supervisor
from trainshed.model.home import Home

CHILD = """
import signal, sys, time
from trainshed.daemon.process import begin
process = begin("child")
{body}
process.say_ready()
while True:
    time.sleep(60)
"""

PARENT = """
import json, os, sys
from pathlib import Path
from trainshed.daemon.home_folder import HomeLock
from trainshed.daemon.supervisor import Supervisor
from trainshed.model.home import Home
home = Home(Path(sys.argv[1]))
lock = HomeLock.take(home)
def say(text):
    print(text, flush=True)
sys.exit(Supervisor(home, dict(os.environ), say=say, on_ready=lambda: say("STANDS"), modules=json.loads(sys.argv[2])).run())
"""


class Family:
    """A supervisor in a process of its own, with children made for one test."""

    def __init__(self, folder: Path, support: Any) -> None:
        self.support = support
        self.home = make_home(folder / "home")
        self.modules = folder / "modules"
        self.modules.mkdir()
        self.names: dict[str, str] = {}
        self.process: subprocess.Popen[str] | None = None

    def add(self, name: str, body: str = "") -> None:
        (self.modules / f"child_{name}.py").write_text(CHILD.format(body=textwrap.dedent(body)))
        self.names[name] = f"child_{name}"

    def start(self) -> None:
        (self.modules / "parent.py").write_text(PARENT)
        self.process = subprocess.Popen(
            [sys.executable, str(self.modules / "parent.py"), str(self.home.path), json.dumps(self.names)],
            env={**os.environ, "PYTHONPATH": str(self.modules)},
            stdout=subprocess.PIPE,
            text=True,
        )

    def state(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self.home.state.read_bytes()))
        except FileNotFoundError:
            return {}

    def pids(self) -> dict[str, int]:
        return {part["name"]: part["pid"] for part in self.state().get("processes", [])}

    def wait_ready(self) -> None:
        self.support.wait_until(lambda: self.state().get("ready"), what="all children ready")


@pytest.fixture
def family(tmp_path: Path, support: Any) -> Iterator[Family]:
    family = Family(tmp_path, support)
    yield family
    if family.process is not None:
        family.process.kill()
        family.process.communicate(timeout=90)


def test_it_starts_all_children_and_ends_them_on_term(family: Family) -> None:
    family.add("one")
    family.add("two")
    family.start()
    family.wait_ready()
    pids = family.pids()
    assert all(family.support.is_alive(pid) for pid in pids.values())
    assert family.process is not None
    family.process.terminate()
    output, _ = family.process.communicate(timeout=90)
    assert family.process.returncode == 0
    assert output.startswith("STANDS")
    assert not any(family.support.is_alive(pid) for pid in pids.values())
    assert not family.home.state.exists()


def test_a_killed_child_is_started_again_and_the_others_are_left_alone(family: Family) -> None:
    family.add("one")
    family.add("two")
    family.start()
    family.wait_ready()
    before = family.pids()
    os.kill(before["one"], signal.SIGKILL)

    def again() -> bool:
        parts = {part["name"]: part for part in family.state()["processes"]}
        return parts["one"]["state"] == "ready" and parts["one"]["pid"] not in (0, before["one"])

    family.support.wait_until(again, what="the child is up again")
    assert family.pids()["two"] == before["two"]
    assert family.state()["processes"][0]["restarts"] == 1
    assert "signal 9" in family.state()["processes"][0]["last_exit"]


def test_children_die_with_a_killed_supervisor(family: Family) -> None:
    # A child that ignores every polite signal must not survive, either.
    family.add("stubborn", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    family.start()
    family.wait_ready()
    pid = family.pids()["stubborn"]
    assert family.process is not None
    family.process.kill()
    family.process.wait(60)
    family.support.wait_until(lambda: not family.support.is_alive(pid), what="the orphan is gone")
    assert find_holder(family.home) is None


@pytest.mark.slow
def test_a_child_that_ignores_term_is_killed_after_the_grace(family: Family) -> None:
    family.add("stubborn", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    family.start()
    family.wait_ready()
    pid = family.pids()["stubborn"]
    assert family.process is not None
    family.process.terminate()
    family.process.communicate(timeout=120)
    assert not family.support.is_alive(pid)


def test_a_platform_whose_child_cannot_start_gives_up_and_shows_its_log(family: Family) -> None:
    family.add("good")
    family.add("broken", "raise SystemExit('the reason is here')")
    family.start()
    assert family.process is not None
    output, _ = family.process.communicate(timeout=120)
    assert family.process.returncode == 1
    assert "broken ended with exit code 1, 3 times" in output
    assert "the reason is here" in output


def test_the_lock_names_its_holder_and_is_free_after_a_kill(family: Family) -> None:
    family.add("one")
    family.start()
    family.wait_ready()
    assert family.process is not None
    assert find_holder(family.home) == family.process.pid
    family.process.kill()
    family.process.wait(60)
    lock = HomeLock.take(Home(family.home.path))
    assert find_holder(family.home) == os.getpid()
    lock.release()


def test_a_child_that_died_thousands_of_times_is_still_tried(family: Family) -> None:
    supervisor = Supervisor(family.home, {}, modules={"one": "child_one"})
    supervisor._stood = True
    child = supervisor._children[0]
    child.failures = 5000
    supervisor._died(child, "was killed by signal 9")
    assert child.delay == 30.0
