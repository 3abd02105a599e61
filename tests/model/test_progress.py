"""The control loop's decision about an attempt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trainshed.model.attempt import Ending, NodeReport
from trainshed.model.idleness import IdleRule
from trainshed.model.phase import TRANSITIONS, Detail, Phase
from trainshed.model.progress import (
    FREE_STARTS,
    MOST_ATTEMPTS,
    AttemptFacts,
    NodeFacts,
    decide_step,
    restart_delay,
)

JOB = AttemptFacts(Phase.RUNNING, 1, 0, 0, False)
COMPLETED = Ending("completed")
FAILED = Ending("failed", "user", "exit", "boom", rank=0, exit_code=1)
LOST = Ending("failed", "platform", "runner_lost", "lost")
STOPPED = Ending("stopped", "stop", "stopped")


def report(ending: Ending | None = None, *, launched: bool = True, **more: Any) -> NodeReport:
    return NodeReport(
        "j", 1, 0, 1, "ended" if ending else "training", launched=launched, ending=ending, **more
    )


def ended(ending: Ending, **more: Any) -> NodeFacts:
    return NodeFacts("ended", report(ending, **more))


def test_success_and_failure() -> None:
    assert decide_step(JOB, [ended(COMPLETED)]).phase is Phase.COMPLETED
    step = decide_step(JOB, [ended(FAILED)])
    assert (step.kind, step.phase, step.ending) == ("finish", Phase.FAILED, FAILED)


def test_a_users_failure_is_not_restarted_a_platforms_is() -> None:
    job = replace(JOB, restarts=1)
    assert decide_step(job, [ended(FAILED)]).kind == "finish"
    assert decide_step(job, [ended(LOST)]).kind == "restart"
    assert decide_step(replace(job, attempt=2), [ended(LOST)]).phase is Phase.FAILED


def test_an_attempt_that_never_launched_is_tried_again_for_free_but_not_forever() -> None:
    step = decide_step(JOB, [ended(LOST, launched=False)])
    assert (step.kind, step.counted) == ("restart", False)
    last = replace(JOB, attempt=FREE_STARTS + 1, starts_without_launch=FREE_STARTS)
    assert decide_step(last, [ended(LOST, launched=False)]).phase is Phase.FAILED


def test_a_fault_of_the_machine_that_stays_is_not_tried_again_for_free() -> None:
    full = Ending("failed", "node", "disk_full", "full")
    assert decide_step(JOB, [ended(full, launched=False)]).phase is Phase.FAILED
    assert decide_step(replace(JOB, restarts=1), [ended(full, launched=False)]).counted


def test_a_lost_runner_is_salvaged_before_anything_is_decided() -> None:
    assert decide_step(JOB, [NodeFacts("lost", report())]).kind == "salvage"
    assert decide_step(replace(JOB, stop_requested=True), [NodeFacts("lost")]).kind == "salvage"


def test_a_crash_between_decision_and_deed_submits_again() -> None:
    assert decide_step(JOB, [NodeFacts("absent")]).kind == "submit"
    assert decide_step(replace(JOB, stop_requested=True), [NodeFacts("absent")]).phase is Phase.TERMINATED


def test_a_stop_ends_as_terminated_unless_the_job_was_faster() -> None:
    job = replace(JOB, phase=Phase.TERMINATING, stop_requested=True)
    assert decide_step(job, [NodeFacts("alive", report())]).kind == "cancel"
    assert decide_step(job, [ended(STOPPED)]).phase is Phase.TERMINATED
    assert decide_step(job, [ended(COMPLETED)]).phase is Phase.COMPLETED
    assert decide_step(job, [ended(FAILED)]).phase is Phase.FAILED
    assert decide_step(job, [ended(LOST)]).phase is Phase.TERMINATED


def test_the_first_failure_of_a_gang_stops_the_others_and_names_the_cause() -> None:
    first = NodeFacts("ended", report(FAILED, ended_at=1.0))
    assert decide_step(JOB, [first, NodeFacts("alive", report())]).kind == "cancel"
    second = NodeFacts("ended", report(STOPPED, ended_at=2.0))
    assert decide_step(JOB, [first, second]).ending == FAILED


def test_processes_ended_from_outside_count_as_the_nodes_fault() -> None:
    step = decide_step(JOB, [ended(STOPPED)])
    assert step.phase is Phase.FAILED and step.ending is not None and step.ending.cause == "node"


STATES = st.sampled_from(["absent", "alive", "ended", "lost", "unknown"])
ENDINGS = st.sampled_from([COMPLETED, FAILED, LOST, STOPPED])


@given(
    st.lists(st.tuples(STATES, ENDINGS, st.booleans()), min_size=1, max_size=4),
    st.sampled_from([Phase.RUNNING, Phase.TERMINATING, Phase.ABNORMAL]),
    st.booleans(),
    st.integers(0, 3),
    st.integers(1, 5),
)
def test_every_combination_has_a_step_that_the_phase_allows(
    nodes: list[tuple[Any, Ending, bool]], phase: Phase, stop: bool, restarts: int, attempt: int
) -> None:
    job = AttemptFacts(phase, attempt, restarts, min(attempt - 1, 2), stop or phase is Phase.TERMINATING)
    facts = [
        NodeFacts(state, report(ending if state == "ended" else None, launched=launched))
        for state, ending, launched in nodes
    ]
    step = decide_step(job, facts)
    if step.kind == "finish":
        assert step.phase in TRANSITIONS[phase] and step.ending is not None
        assert all(node.state in ("ended", "absent") for node in facts)
    if step.kind == "restart":
        assert Phase.PENDING in TRANSITIONS[phase] and not job.stop_requested


def test_a_job_that_only_sleeps_is_held_open_and_then_released() -> None:
    job = replace(JOB, hold=100, now=1000.0)
    sleeping = NodeFacts("alive", report(held_since=950.0))
    step = decide_step(job, [sleeping, sleeping])
    assert (step.kind, step.detail) == ("keep", Detail.HELD)
    step = decide_step(replace(job, now=1050.0), [sleeping, sleeping])
    assert (step.kind, step.detail) == ("release", Detail.HELD)
    # It counts from when the last node began to sleep, and a node that works keeps all of them.
    later = NodeFacts("alive", report(held_since=990.0))
    assert decide_step(replace(job, now=1060.0), [sleeping, later]).kind == "keep"
    working = NodeFacts("alive", report())
    step = decide_step(replace(job, now=9000.0), [sleeping, working])
    assert (step.kind, step.detail) == ("keep", Detail.TRAINING)


def test_only_a_job_that_may_be_held_is_released() -> None:
    sleeping = NodeFacts("alive", report(held_since=1.0))
    assert decide_step(replace(JOB, now=1e9), [sleeping]).kind == "keep"


def test_a_job_hangs_when_all_its_nodes_are_silent() -> None:
    quiet = NodeFacts("alive", replace(report(), silent_since=5.0))
    busy = NodeFacts("alive", report())
    assert decide_step(JOB, [quiet, busy]).kind == "keep"
    assert decide_step(JOB, [quiet, quiet]).kind == "hang"
    assert decide_step(JOB, [quiet, NodeFacts("ended", report(Ending("completed")))]).kind == "hang"
    assert decide_step(replace(JOB, stop_requested=True), [quiet]).kind == "cancel"


def test_a_job_that_keeps_failing_rests_longer_each_time() -> None:
    delays = [restart_delay(attempt) for attempt in range(1, 12)]
    assert delays[:4] == [0.0, 10.0, 20.0, 40.0] and delays[-1] == max(delays) == 600.0
    job = replace(JOB, restarts=9, attempt=3)
    step = decide_step(job, [ended(LOST)])
    assert (step.kind, step.delay) == ("restart", 20.0)
    assert decide_step(replace(job, attempt=1), [ended(LOST)]).delay == 0.0


def test_a_job_that_may_be_preempted_comes_back_and_keeps_its_restarts() -> None:
    taken = Ending("failed", "node", "preempted", "taken")
    assert decide_step(JOB, [ended(taken)]).phase is Phase.FAILED
    step = decide_step(replace(JOB, restarts=1, attempt=1), [ended(taken)])
    assert (step.kind, step.counted, step.detail, step.delay) == ("restart", True, Detail.PREEMPTED, 0.0)
    job = replace(JOB, is_preemptible=True, attempt=9, starts_without_launch=8)
    step = decide_step(job, [ended(taken)])
    assert (step.kind, step.counted, step.delay) == ("restart", False, 0.0)
    assert decide_step(replace(job, attempt=MOST_ATTEMPTS), [ended(taken)]).phase is Phase.FAILED
    # Only a preemption is free for it.
    assert decide_step(job, [ended(LOST)]).phase is Phase.FAILED
    assert decide_step(replace(job, stop_requested=True), [ended(taken)]).phase is Phase.TERMINATED


def test_after_the_time_limit_a_job_goes_on_if_it_says_so() -> None:
    limit = Ending("failed", "limit", "time_limit", "over")
    job = replace(JOB, restarts=2, attempt=2, goes_on_after_limit=True)
    step = decide_step(job, [ended(limit)])
    assert (step.kind, step.counted, step.delay) == ("restart", True, 0.0)
    assert decide_step(replace(job, attempt=3), [ended(limit)]).phase is Phase.FAILED
    assert decide_step(replace(job, goes_on_after_limit=False), [ended(limit)]).phase is Phase.FAILED
    hang = Ending("failed", "limit", "hang", "silent")
    assert decide_step(job, [ended(hang)]).phase is Phase.FAILED


def test_a_job_is_idle_when_all_its_nodes_are_for_as_long_as_its_rule_says() -> None:
    idle = NodeFacts("alive", report(idle_since=100.0))
    job = replace(JOB, idle=IdleRule(60, 600), now=150.0)
    assert decide_step(job, [idle]).detail is Detail.TRAINING
    job = replace(job, now=170.0)
    assert (decide_step(job, [idle, idle]).kind, decide_step(job, [idle]).detail) == ("keep", Detail.IDLE)
    assert decide_step(job, [idle, NodeFacts("alive", report())]).detail is Detail.TRAINING
    step = decide_step(replace(job, now=700.0), [idle])
    assert (step.kind, step.detail) == ("idle", Detail.IDLE) and "for 10 min" in step.reason
    assert decide_step(replace(job, now=700.0, stop_requested=True), [idle]).kind == "cancel"
    assert decide_step(replace(job, now=700.0, idle=IdleRule()), [idle]).detail is Detail.TRAINING
    # A job that is held open for people is no idle one.
    held = NodeFacts("alive", report(idle_since=100.0, held_since=90.0))
    assert decide_step(replace(job, now=700.0, hold=7200), [held, held]).detail is Detail.HELD
