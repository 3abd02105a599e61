"""Slurm's words in words that help."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.engines.engine import EXIT_NO_PYTHON, EXIT_UNDELIVERED
from trainshed.engines.slurm.answers import JobEnd, QueuedJob, read_queue
from trainshed.engines.slurm.reasons import explain_end, explain_refusal, explain_wait, is_passing

CAPTURED = Path(__file__).parent / "captured"


def waiting(reason: str, state: str = "PENDING", start: str = "N/A") -> QueuedJob:
    return QueuedJob(1, state, reason, "", start, "u", "p", "n")


@pytest.mark.parametrize("name", ["squeue.txt", "squeue_preempted.txt"])
def test_every_reason_that_was_seen_has_words(name: str) -> None:
    for job in read_queue((CAPTURED / name).read_text("utf-8")):
        if job.is_waiting:
            assert "Slurm says" not in explain_wait(job).reason, job.reason


def test_reasons() -> None:
    assert "held" in explain_wait(waiting("JobHeldUser")).reason
    assert "time_limit" in explain_wait(waiting("PartitionTimeLimit")).hint
    assert "quality of service (QOSMaxGRESPerUser)" in explain_wait(waiting("QOSMaxGRESPerUser")).reason
    assert "account (AssocGrpGRES)" in explain_wait(waiting("AssocGrpGRES")).reason
    assert explain_wait(waiting("Something")).reason == "Slurm says: Something."
    assert "not available" in explain_wait(waiting("ReqNodeNotAvail, UnavailableNodes:n3")).reason
    assert "preparing" in explain_wait(waiting("None", "CONFIGURING")).reason
    later = explain_wait(waiting("Resources", start="2027-01-01T10:00:00"))
    assert later.hint == "Slurm expects to start it at 2027-01-01 10:00."


def test_what_passes_is_told_from_what_does_not() -> None:
    assert is_passing("sbatch: error: Batch job submission failed: Unable to contact slurm controller")
    assert is_passing("sbatch: error: QOSMaxSubmitJobPerUserLimit")
    assert is_passing("error: If munged is up, restart with --num-threads=10\nerror: Munge encode failed: x")
    assert not is_passing("sbatch: error: Batch job submission failed: Invalid partition name specified")


def test_refusals() -> None:
    words = explain_refusal(
        "sbatch: error: invalid partition specified: nowhere\n"
        "sbatch: error: Batch job submission failed: Invalid partition name specified"
    )
    assert words.reason.startswith("Slurm has no such partition.") and "nowhere" in words.reason
    words = explain_refusal(
        "sbatch: error: Batch job submission failed: Requested node configuration is not available"
    )
    assert "smaller flavor" in words.hint
    assert "no reason" in explain_refusal("").reason


@pytest.mark.parametrize(
    ("end", "code", "cause"),
    [
        (None, "runner_lost", "node"),
        (JobEnd("PREEMPTED"), "preempted", "node"),
        (JobEnd("NODE_FAIL"), "node_failed", "node"),
        (JobEnd("TIMEOUT"), "time_limit", "limit"),
        (JobEnd("OUT_OF_MEMORY"), "out_of_memory", "user"),
        (JobEnd("CANCELLED"), "ended_from_outside", "node"),
        (JobEnd("FAILED", "BadConstraints"), "slurm_refused", "user"),
        (JobEnd("FAILED", "NonZeroExitCode", EXIT_NO_PYTHON), "no_python", "platform"),
        (JobEnd("COMPLETED"), "runner_lost", "platform"),
    ],
)
def test_ends(end: JobEnd | None, code: str, cause: str) -> None:
    ending = explain_end(end, 1)
    assert (ending.outcome, ending.code, ending.cause, ending.node) == ("failed", code, cause, 1)
    assert ending.message and ending.hint


def test_where_it_lies_is_told_of_what_was_not_delivered() -> None:
    ending = explain_end(JobEnd("FAILED", "NonZeroExitCode", EXIT_UNDELIVERED), 1, "run-0a1b2c3d-1-1-…", "n7")
    assert ending.code == "undelivered" and "its machine n7 could not" in ending.message
    assert "trainshed-<uid>/run-0a1b2c3d-1-1-…" in ending.hint
