"""What the ends of real logs tell.

Every file of the corpus is the log of a failure with a header of what must be read from it. Most were made by
running the failure; those that need hardware are written in the shape of public logs.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trainshed.model.failures import KNOWN_FAILURES
from trainshed.model.failures.log_end import read_log_end

CORPUS = Path(__file__).parent.parent / "diagnosis_corpus"
FILES = sorted(CORPUS.glob("*.txt"))


def _load(path: Path) -> tuple[dict[str, str], str]:
    head, text = path.read_text("utf-8").split("---\n", 1)
    fields = [line.partition(":") for line in head.splitlines()]
    return {name: value.strip() for name, _, value in fields}, text


def test_the_corpus_is_large() -> None:
    made = [_load(path)[0]["made"] for path in FILES]
    assert len(FILES) >= 90 and made.count("by running it") >= 75


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_log_of_the_corpus(path: Path) -> None:
    expected, text = _load(path)
    found = read_log_end(text)
    assert found.reason == expected["reason"], found
    assert expected["line"] in found.line
    assert expected["hint"] in found.hint and bool(found.hint) == bool(expected["hint"])
    assert found.rank == int(expected["rank"])
    assert found.follows == (expected["follows"] == "yes")
    assert found.place.endswith(expected["place"]) and bool(found.place) >= bool(expected["place"])


@pytest.mark.parametrize("failure", KNOWN_FAILURES, ids=lambda failure: failure.reason)
def test_a_known_failure_can_be_told(failure: object) -> None:
    from trainshed.model.failures import KnownFailure

    assert isinstance(failure, KnownFailure)
    groups = ("x",) * re.compile(failure.pattern).groups
    assert failure.meaning.format(*groups) and failure.hint.format(*groups).endswith((".", "?"))
    assert not failure.meaning.endswith(".")


def test_a_caught_error_long_before_the_end_is_no_reason() -> None:
    tail = "Traceback (most recent call last):\n  File \"/job/code/a.py\", line 1, in f\nFileNotFoundError: x: '/a'\n"
    tail += "".join(f"step {step} loss 0.1\n" for step in range(200))
    assert read_log_end(tail).reason == "unknown" and read_log_end(tail).line == "step 199 loss 0.1"


def test_ranks_that_still_wait_are_told_apart_from_those_that_met() -> None:
    waiting = "[WARNING] DISTRIBUTED(9,python): BuildCluster] Topology build timed out., retry(8/3600).\n"
    met = "[WARNING] DISTRIBUTED(9,python): BuildCluster] Cluster is successfully initialized.\n"
    assert read_log_end(waiting).reason == "peer_missing"
    assert read_log_end("importing\n" + waiting).reason == "peer_missing"
    assert read_log_end(waiting + met).reason == "unknown"
    assert read_log_end(waiting + met + waiting).reason == "peer_missing"
    assert read_log_end(waiting + "rank 3 of 16\n").reason == "unknown"


def test_a_try_that_is_made_again_is_no_reason() -> None:
    again = (
        "Retrying (Retry(total=4, connect=None)) after connection broken by 'NewConnectionError: "
        "[Errno -3] Temporary failure in name resolution': /simple/pip/\n"
    )
    assert read_log_end(again + "loss 0.1\n").reason == "unknown"
    last = "requests.exceptions.ConnectionError: Temporary failure in name resolution, not retrying\n"
    assert read_log_end(again + last).reason == "no_network"


def test_a_process_that_ended_well_is_no_reason() -> None:
    assert read_log_end("worker 1: Exit code 0\nstep 7\n").reason == "unknown"
    assert read_log_end("worker 1: Exit code 10\n").reason == "launcher"


def test_a_hostile_log_is_read_in_short_time() -> None:
    for tail in (
        "x" * 70_000,
        "a.b" * 20_000 + "Error",
        "Traceback (most recent call last):\n" * 2000,
        "\r" * 65536,
    ):
        assert read_log_end(tail).reason == "unknown"
    nested = "".join(f"ValueError: {'(' * 100} nan {index}\n" for index in range(500))
    assert read_log_end(nested).reason == "not_a_number"


def test_every_reason_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "failures.md").read_text("utf-8")
    words = set(re.findall(r"\w+", page))
    assert {failure.reason for failure in KNOWN_FAILURES} - words == set()
