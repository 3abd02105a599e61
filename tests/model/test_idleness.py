"""Who counts as idle, and what follows."""

from __future__ import annotations

from trainshed.model.attempt import NodeReport
from trainshed.model.idleness import IdleRule, idle_since, rule_for


def report(since: float, stage: str = "training") -> NodeReport:
    return NodeReport("job", 1, 0, 1, stage, idle_since=since)  # type: ignore[arg-type]


def test_the_jobs_wish_the_administrators_default_and_the_limit() -> None:
    assert rule_for({}) == IdleRule()
    assert rule_for({"idle_after": 600}) == IdleRule(600, 0)
    assert rule_for({"idle_after": 600, "idle_action": "stop"}) == IdleRule(600, 600)
    assert rule_for({}, default_minutes=30) == IdleRule(1800, 0)
    assert rule_for({"idle_after": 60}, 30, 60) == IdleRule(60, 3600)
    # A job cannot put off the limit.
    assert rule_for({"idle_after": 86400, "idle_action": "stop"}, 0, 60) == IdleRule(86400, 3600)


def test_a_job_is_idle_when_all_its_nodes_are() -> None:
    assert idle_since([report(5.0), report(9.0)]) == 9.0
    assert idle_since([report(5.0), report(0.0)]) == 0.0
    assert idle_since([report(5.0), None]) == 0.0
    # It brings its results home: the idleness before does not count any more.
    assert idle_since([report(5.0, "uploading")]) == 0.0
    assert idle_since([]) == 0.0
