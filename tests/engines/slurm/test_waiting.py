"""Attempts that wait in Slurm: what was seen of them counts until Slurm or a node says something else."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from trainshed.engines.engine import NodeObservation, RemoteStart
from trainshed.engines.slurm.accounts import own_account
from trainshed.engines.slurm.attempt_folder import AttemptFolder, Submission
from trainshed.engines.slurm.commands import Commands
from trainshed.engines.slurm.engine import SlurmEngine
from trainshed.model.attempt import Ending, NodeReport
from trainshed.model.home import Home
from trainshed.model.pools import Pool

NAME = "trainshed-p-job-1"


class Site:
    """An engine whose squeue prints what a file holds, and the folder of an attempt that was handed over."""

    def __init__(self, path: Path) -> None:
        self._answer = path / "answer"
        (path / "squeue").write_text(f"#!/bin/sh\ncat {self._answer}\n")
        (path / "squeue").chmod(0o755)
        home = Home(path / "home")
        self.folder = AttemptFolder(home, "job", 1)
        self.folder.make(1)
        self.folder.write(Submission(NAME, "lab", 1, 30, time.time(), id=5))
        # Long enough ago that nobody can change it in the same tick of the disk's clock.
        self.touch(time.time() - 60)
        self.engine = SlurmEngine(
            (Pool("lab", "slurm", "all"),),
            lambda launch: RemoteStart(""),
            home,
            time.time,
            platform="p",
            commands=Commands({"PATH": f"{path}:/usr/bin:/bin"}),
        )

    def touch(self, moment: float) -> None:
        for path in (self.folder.node(0).path, self.folder.path / "slurm.json"):
            os.utime(path, (moment, moment))

    def say(self, state: str, reason: str) -> None:
        """Let the controller say this, and wait until it was heard."""
        self.write(state, reason)
        self.engine._board.find(NAME, fresh=True)

    def write(self, state: str, reason: str) -> None:
        """What the controller says from now on."""
        self._answer.write_text(f"5|{state}|{reason}||N/A|{own_account()}|all|{NAME}\n")

    def look(self) -> list[NodeObservation]:
        return self.engine.describe("job", 1, 1)


def test_an_attempt_that_waits_as_before_is_the_same_sight(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.say("PENDING", "Priority")
    first = site.look()
    assert [node.state for node in first] == ["queued"]
    site.say("PENDING", "Priority")
    assert site.look() is first
    site.say("PENDING", "Resources")
    second = site.look()
    assert second[0].state == "queued" and second[0].reason != first[0].reason
    assert site.look() is second


def test_a_node_that_has_come_is_seen_although_slurm_says_the_same(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.say("PENDING", "Priority")
    waiting = site.look()
    assert site.look() is waiting
    site.folder.node(0).claim.write_text('{"node": 0, "nonce": "x", "host": "n1", "address": "10.0.0.1"}')
    assert [node.state for node in site.look()] == ["alive"]


def test_a_start_and_an_end_in_slurm_are_seen_at_once(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.say("PENDING", "Priority")
    assert site.look() is site.look()
    site.say("RUNNING", "None")
    assert [node.state for node in site.look()] == ["alive"]
    site.say("CANCELLED", "None")
    assert [node.state for node in site.look()] == ["lost"]


def test_a_controller_that_is_away_ends_what_was_seen(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.say("PENDING", "Priority")
    waiting = site.look()
    (tmp_path / "squeue").write_text(
        "#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact' >&2; exit 1\n"
    )
    deadline = time.monotonic() + 60
    while site.look() is waiting:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert [node.state for node in site.look()] == ["queued"]


def test_slurm_is_asked_at_once_who_ended_a_node_that_had_just_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainshed.engines.slurm.board._WAIT_SECONDS", 60.0)
    site = Site(tmp_path)
    site.say("PENDING", "Priority")
    site.folder.node(0).claim.write_text('{"node": 0, "nonce": "x", "host": "n1", "address": "10.0.0.1"}')
    # What Slurm said is older than the start: the next answer is waited for.
    assert [node.state for node in site.look()] == ["alive"]
    ending = Ending("stopped", "stop", "stopped", "It was asked to stop.")
    report = NodeReport("job", 1, 0, 0, "ended", ending=ending, ended_at=time.time())
    site.folder.write_report(report)
    site.write("PREEMPTED", "None")
    (seen,) = site.look()
    assert seen.report is not None and seen.report.ending is not None
    assert (seen.state, seen.report.ending.code) == ("ended", "preempted")
