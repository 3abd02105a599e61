"""What is known of the queue, and since when: answers that are too old, slow or of somebody else."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from trainshed.engines.slurm.accounts import own_account
from trainshed.engines.slurm.board import Board
from trainshed.engines.slurm.commands import Commands
from trainshed.model.errors import Unavailable

NAME = "trainshed-p-job-1"


class Site:
    """A folder of stand-ins for Slurm's commands: they print what a file holds, as slowly as it says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answer = path / "answer"
        self.answer.write_text("")
        (path / "pause").write_text("0")
        self._write("squeue", f"cat {self.answer} > {path}/now; sleep $(cat {path}/pause); cat {path}/now")
        self.board = Board(Commands({"PATH": f"{path}:/usr/bin:/bin"}), "p", ())

    def _write(self, name: str, text: str) -> None:
        (self.path / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.path / name).chmod(0o755)

    def say(self, *lines: str) -> None:
        self.answer.write_text("".join(f"{line}\n" for line in lines))

    def line(self, number: int, state: str, name: str = NAME, user: str = "") -> str:
        return f"{number}|{state}|None|n1|N/A|{user or own_account()}|all|{name}"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_an_answer_from_before_a_change_does_not_count(site: Site) -> None:
    assert site.board.find(NAME, fresh=True) == []
    # A controller that is killed right now leaves a question open for long: the old answer knows no such job.
    (site.path / "pause").write_text("3")
    site.board.note_change(NAME)
    with pytest.raises(Unavailable, match="not confirmed"):
        site.board.find(NAME)
    # Another job, at which nothing was changed, is told of as before; and nobody waits once more.
    waits: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site.board, "_wait", waits.append)
        assert site.board.find("trainshed-p-other-1") == []
        with pytest.raises(Unavailable):
            site.board.find(NAME)
    assert all(seconds <= 0 for seconds in waits), waits
    site.say(site.line(5, "RUNNING"))
    (site.path / "pause").write_text("0")
    # The question that is still open may take long on a busy machine.
    deadline = time.monotonic() + 90
    found: list[int] = []
    while not found:
        assert time.monotonic() < deadline
        with contextlib.suppress(Unavailable):
            found = [job.id for job in site.board.find(NAME, fresh=True)]
    assert found == [5]


def test_only_jobs_of_the_right_account_and_name_are_ours(site: Site) -> None:
    site.say(site.line(1, "RUNNING", user="mallory"), site.line(2, "RUNNING", "trainshed-q-job-1"), "rubbish")
    assert site.board.find(NAME, fresh=True) == []
    assert site.board.live_jobs() == [job for job in site.board.live_jobs() if job.name == NAME]


def test_a_job_whose_name_the_site_has_changed_is_known_by_its_script(site: Site) -> None:
    site._write("scontrol", f"[ $3 = 7 ] && echo '#SBATCH --job-name={NAME}' || echo '#SBATCH --job-name=x'")
    site.say(site.line(7, "RUNNING", NAME[:12]), site.line(8, "RUNNING", "another"))
    assert [job.id for job in site.board.find(NAME, number=7, fresh=True)] == [7]
    assert site.board.find(NAME, number=8) == [] and site.board.find(NAME) == []


def test_what_is_doubtful_is_asked_again_before_it_is_believed(site: Site) -> None:
    site.say(site.line(1, "PENDING"))
    assert site.board.find(NAME, fresh=True)[0].is_waiting
    # Its runner has begun meanwhile: the answer is older than that.
    site.say(site.line(1, "RUNNING"))
    assert site.board.doubt(NAME, True) < 30
    assert not site.board.find(NAME)[0].is_waiting
    now = time.monotonic()
    site.board._monotonic = lambda: now + 60
    assert site.board.doubt(NAME, True) > 30
    assert site.board.doubt(NAME, False) == 0 and site.board.doubt(NAME, True) == 0


def test_a_command_that_hangs_makes_nobody_else_wait(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainshed.engines.slurm.board._LONGEST_WAIT", 0.5)
    monkeypatch.setattr("trainshed.engines.slurm.board._LONGEST_SILENCE", 0.8)
    (site.path / "pause").write_text("4")
    with pytest.raises(Unavailable, match="not answered yet"):
        site.board.find(NAME, fresh=True)
    began = time.monotonic()
    for _ in range(50):
        with pytest.raises(Unavailable):
            site.board.find(NAME, fresh=True)
        with pytest.raises(Unavailable):
            site.board.find(NAME)
    # A wait of half a second for each would be fifty.
    assert time.monotonic() - began < 25
