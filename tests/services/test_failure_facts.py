"""What is told about a job that has failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainshed.db.attempts import AttemptRow, insert_attempt
from trainshed.db.engine import begin
from trainshed.model.phase import Phase
from trainshed.services import jobs
from trainshed.services.failure_facts import failure_facts, telling_stream
from trainshed.services.identity import Caller
from trainshed.services.jobs import JobView
from trainshed.services.platform import Platform

ENDING = {
    "outcome": "failed",
    "cause": "user",
    "code": "exit",
    "message": "Rank 5 ended with exit code 1: the module 'torch' is not installed.",
    "hint": "Add 'torch' to requirements.txt.",
    "rank": 5,
    "node": 1,
    "line": "ModuleNotFoundError: No module named 'torch'",
    "place": "/job/code/train.py:12",
    "reason": "missing_module",
}


def exit_of(rank: int, code: int, *, ended: bool = False) -> dict[str, Any]:
    """How a rank ended."""
    return {"rank": rank, "exit_code": code, "time": 1.0, "ended_by_platform": ended}


def test_a_failure_over_two_nodes_is_told(
    platform: Platform, ann: Caller, submit: Callable[..., JobView], advance: Callable[..., None]
) -> None:
    job = submit(ann, name="two", secrets={"KEY": "geheim-123"})
    reports = [
        {"ranks": [exit_of(rank, 143, ended=True) for rank in range(4)]},
        {"ranks": [exit_of(4, 0), exit_of(5, 1), exit_of(6, 1), exit_of(7, 143, ended=True)]},
    ]
    placements = [{"node": name, "devices": [0, 1, 2, 3]} for name in ("alpha", "beta")]
    with begin(platform.engine) as connection:
        insert_attempt(connection, AttemptRow(job.id, 1, "local", placements, "ended", 1.0, reports=reports))
    advance(job.id, Phase.PENDING, Phase.RUNNING, Phase.FAILED, ending=ENDING, attempt=1, nodes=2)
    log = platform.home.run_folder(job.id, 1, 1).rank_log(5)
    log.parent.mkdir(parents=True)
    log.write_text("old\n" * 9000 + "".join(f"line {n}\n" for n in range(30)) + "key geheim-123\n10%\r20%\n")
    told = jobs.explain_job(platform, ann, "two")
    assert told.facts[:4] == [
        "Cause: the job's own code.",
        "First to fail: rank 5 on node 1 (beta).",
        "Line 12 of /job/code/train.py.",
        "Its log says: ModuleNotFoundError: No module named 'torch'",
    ]
    assert "Failed after it: rank 6." in told.facts
    assert "Ended because of it: rank 0-3, 7." in told.facts
    assert "Ended well before: rank 4." in told.facts
    assert told.stream == "rank-5" and told.hint == "Add 'torch' to requirements.txt."
    assert told.last_lines[-3] == "line 29" and told.last_lines[-1] == "20%"
    assert len(told.last_lines) == 15 and "geheim" not in str(told)


def test_an_unknown_failure_says_so_and_shows_the_log(
    platform: Platform, ann: Caller, submit: Callable[..., JobView], advance: Callable[..., None]
) -> None:
    job = submit(ann, name="odd")
    ending = {**ENDING, "reason": "unknown", "rank": 0, "node": 0, "place": "", "line": "step 1"}
    with begin(platform.engine) as connection:
        insert_attempt(connection, AttemptRow(job.id, 1, "local", [{"node": "alpha"}], "ended", 1.0))
    advance(job.id, Phase.PENDING, Phase.RUNNING, Phase.FAILED, ending=ending, attempt=1)
    told = jobs.explain_job(platform, ann, "odd")
    assert any("does not know this failure" in fact for fact in told.facts)
    assert "First to fail: rank 0 on alpha." in told.facts and told.last_lines == []


def test_the_log_to_open_first() -> None:
    assert telling_stream({"outcome": "failed", "rank": 2}) == "rank-2"
    assert telling_stream({"outcome": "failed", "rank": 2, "stream": "worker_1.log"}) == "worker_1.log"
    assert telling_stream({"outcome": "failed", "rank": -1}) == "platform"
    assert telling_stream({}) == ""


def test_a_failure_of_a_node_without_a_rank_names_the_node() -> None:
    ending = {"outcome": "failed", "cause": "platform", "code": "runner_lost", "node": 1}
    placements = [{"node": name, "devices": []} for name in ("alpha", "beta")]
    attempt = AttemptRow("job", 1, "local", placements, "ended", 1.0)
    assert "It happened on node 1 (beta)." in failure_facts(ending, attempt)
    assert telling_stream(ending) == "node-1/platform"
    assert telling_stream({**ending, "node": 0}) == "platform"
