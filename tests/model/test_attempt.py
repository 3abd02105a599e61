"""How an attempt of several nodes is judged."""

from __future__ import annotations

from trainshed.model.attempt import Ending, NodeReport, judge_attempt


def report(node: int, ending: Ending | None, ended_at: float) -> NodeReport:
    """The report of a node."""
    return NodeReport("j", 1, node, 1, "ended", ending=ending, ended_at=ended_at)


STOPPED = Ending("stopped", "stop", "stopped", "Another node of this job has ended.")


def test_the_rank_that_failed_first_counts_not_the_runner_that_ended_first() -> None:
    # Node 0 failed first, but had more to upload.
    slow = report(0, Ending("failed", "user", "exit", rank=0, node=0, time=10.0), ended_at=90.0)
    quick = report(1, Ending("failed", "user", "exit", rank=9, node=1, time=12.0), ended_at=13.0)
    assert judge_attempt([slow, quick]).rank == 0
    assert judge_attempt([quick, slow]).rank == 0


def test_a_failure_that_follows_from_another_gives_way_to_it() -> None:
    lost_peer = report(0, Ending("failed", "user", "exit", rank=0, time=10.0, follows=True), ended_at=11.0)
    cause = report(1, Ending("failed", "user", "exit", rank=8, time=10.5), ended_at=12.0)
    assert judge_attempt([lost_peer, cause]).rank == 8
    assert judge_attempt([lost_peer, report(1, STOPPED, 12.0)]).rank == 0


def test_a_failure_before_any_rank_is_placed_by_the_end_of_the_run() -> None:
    staging = report(1, Ending("failed", "user", "input", "The input is gone."), ended_at=5.0)
    later = report(0, Ending("failed", "user", "exit", rank=0, time=9.0), ended_at=9.5)
    assert judge_attempt([later, staging]).code == "input"


def test_stopped_and_completed() -> None:
    done = report(0, Ending("completed"), 1.0)
    assert judge_attempt([done, report(1, STOPPED, 2.0)]).outcome == "stopped"
    assert judge_attempt([done, report(1, None, 0.0)]).outcome == "completed"
