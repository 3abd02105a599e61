"""What is thought of a node when it, Slurm and time say different things."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainshed.engines.engine import NodeObservation
from trainshed.engines.slurm.answers import QueuedJob
from trainshed.engines.slurm.observation import (
    NodeSight,
    has_begun,
    observe,
    observe_without_slurm,
    to_be_ended,
)
from trainshed.model.attempt import Ending, NodeReport
from trainshed.model.errors import Unavailable

NOW = 1000.0
WORKING = NodeReport("j", 1, 0, 7, "training", launched=True)
COMPLETED = replace(WORKING, stage="ended", ending=Ending("completed"), ended_at=990.0)
STOPPED = replace(WORKING, stage="ended", ending=Ending("stopped", "stop", "stopped"), ended_at=990.0)
HEARD = NodeSight(WORKING, is_claimed=True, heard_at=999.0)
SILENT = NodeSight(WORKING, is_claimed=True, heard_at=900.0)
AWAY = Unavailable("Slurm's controller does not answer.")


def job(state: str, reason: str = "None") -> QueuedJob:
    return QueuedJob(1, state, reason, "n1", "N/A", "u", "all", "x")


def see(sight: NodeSight, known: QueuedJob | None, missing_for: float = 60.0) -> NodeObservation:
    return observe([sight], known, now=NOW, missing_for=missing_for, grace=10)[0]


@pytest.mark.parametrize(
    ("sight", "known", "state"),
    [
        (NodeSight(), job("PENDING", "Priority"), "queued"),
        (NodeSight(), job("RUNNING"), "alive"),
        (NodeSight(is_claimed=True, heard_at=1.0), job("RUNNING"), "alive"),
        (SILENT, job("RUNNING"), "alive"),
        # Slurm has given it up: while it is heard it brings home what it has.
        (HEARD, job("NODE_FAIL"), "alive"),
        (SILENT, job("NODE_FAIL"), "lost"),
        # A node that had begun and waits again is not given a second life, with or without a first report.
        (SILENT, job("PENDING"), "lost"),
        (NodeSight(is_claimed=True, heard_at=900.0), job("REQUEUED"), "lost"),
        (HEARD, None, "alive"),
        (SILENT, None, "lost"),
    ],
)
def test_states(sight: NodeSight, known: QueuedJob | None, state: str) -> None:
    assert see(sight, known).state == state


def test_a_controller_that_has_just_come_up_is_not_believed_at_once() -> None:
    assert see(SILENT, None, missing_for=1.0).state == "alive"
    assert to_be_ended([HEARD], None, now=NOW, missing_for=1.0) == []
    # Nor is an answer that may be older than the start.
    assert see(SILENT, job("PENDING"), missing_for=1.0).state == "alive"
    assert to_be_ended([HEARD], job("PENDING"), now=NOW, missing_for=1.0) == []


def test_who_is_still_heard_is_asked_to_come_home_once() -> None:
    sights = [HEARD, SILENT, replace(HEARD, report=COMPLETED), replace(HEARD, asked_at=998.0)]
    assert to_be_ended(sights, job("NODE_FAIL"), now=NOW, missing_for=0.0) == [0]
    assert to_be_ended(sights, job("PENDING"), now=NOW, missing_for=60.0) == [0]
    assert to_be_ended(sights, None, now=NOW, missing_for=60.0) == [0]
    assert to_be_ended(sights, job("RUNNING"), now=NOW, missing_for=0.0) == []
    assert to_be_ended([NodeSight()], job("PENDING"), now=NOW, missing_for=0.0) == []
    # Not for ever, though.
    assert see(replace(HEARD, asked_at=998.0), job("NODE_FAIL")).state == "alive"
    assert see(replace(HEARD, asked_at=NOW - 2000), job("NODE_FAIL")).state == "lost"


def test_a_signal_is_explained_by_what_slurm_says() -> None:
    given_up = NodeSight(STOPPED, True, 999.0, asked_at=980.0, is_given_up=True, told_at=990.0)

    def code(sight: NodeSight, known: QueuedJob | None) -> str:
        report = see(sight, known).report
        assert report is not None and report.ending is not None
        return report.ending.code

    assert code(given_up, job("NODE_FAIL")) == "node_failed"
    assert code(given_up, None) == "runner_lost"
    assert code(replace(given_up, asked_at=0.0), job("PREEMPTED")) == "preempted"
    # Somebody asked through the platform, before: that is the reason.
    assert code(replace(given_up, is_given_up=False), job("CANCELLED")) == "stopped"
    told = observe(
        [replace(given_up, asked_at=0.0, is_given_up=False)],
        None,
        now=NOW,
        missing_for=60.0,
        grace=1,
        recall=lambda report: "TIMEOUT",
    )
    assert told[0].report is not None and told[0].report.ending is not None
    assert told[0].report.ending.code == "time_limit"


def test_without_the_controller_runners_are_believed_as_long_as_they_are_heard() -> None:
    def states(sight: NodeSight, silent_for: float) -> str:
        return observe_without_slurm([sight], AWAY, now=NOW, silent_for=silent_for)[0].state

    assert states(NodeSight(), 5.0) == states(NodeSight(), 5000.0) == "queued"
    assert states(HEARD, 5000.0) == "alive"
    assert states(replace(SILENT, heard_at=0.0), 100.0) == "alive"
    assert states(replace(SILENT, heard_at=0.0), 5000.0) == "unknown"
    assert states(replace(HEARD, report=COMPLETED), 5000.0) == "ended"


def test_a_node_has_begun_when_somebody_has_taken_it() -> None:
    assert not has_begun([NodeSight(), NodeSight(asked_at=5.0)])
    assert has_begun([NodeSight(), NodeSight(is_claimed=True)])


@pytest.mark.parametrize(
    ("state", "recalled", "code"),
    [
        # It left within its GraceTime, or used all of it: the queue calls neither of them a preemption.
        ("FAILED", "PREEMPTED", "preempted"),
        ("TIMEOUT", "PREEMPTED", "preempted"),
        ("TIMEOUT", "TIMEOUT", "time_limit"),
        ("TIMEOUT", "", "time_limit"),
        ("FAILED", "FAILED", "stopped"),
    ],
)
def test_a_preemption_is_told_from_a_time_limit_and_from_a_mere_end(
    state: str, recalled: str, code: str
) -> None:
    sight = NodeSight(STOPPED, is_claimed=True, heard_at=999.0)
    (seen,) = observe([sight], job(state), now=NOW, missing_for=0, grace=10, recall=lambda report: recalled)
    assert seen.report is not None and seen.report.ending is not None and seen.report.ending.code == code
