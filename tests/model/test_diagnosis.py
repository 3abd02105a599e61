"""Why a job failed, in words."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from trainshed.model.attempt import RankExit
from trainshed.model.diagnosis import diagnose_ranks, telling_line

TRACEBACK = """starting
Traceback (most recent call last):
  File "/job/code/train.py", line 3, in <module>
    import mindspore
ModuleNotFoundError: No module named 'mindspore'
"""
CORPUS = Path(__file__).parent / "diagnosis_corpus"


def corpus_text(name: str) -> str:
    """The log of a failure of the corpus, without its header."""
    return (CORPUS / f"{name}.txt").read_text("utf-8").split("---\n", 1)[1]


@pytest.mark.parametrize(
    ("tail", "line", "hint"),
    [
        (
            TRACEBACK,
            "ModuleNotFoundError: No module named 'mindspore'",
            "Add 'mindspore' to requirements.txt",
        ),
        (
            "usage: train.py\ntrain.py: error: unrecognized arguments: --foo=1\n",
            "error: unrecognized",
            "--foo=1",
        ),
        ("ValueError: bad {braces}\nException ignored in: x", "ValueError: bad {braces}", ""),
        ("\x1b[31mKeyError: 'x'\x1b[0m\n\n", "KeyError: 'x'", ""),
        (
            "10%\r20%\rRuntimeError: CUDA out of memory. Tried",
            "RuntimeError: CUDA out of memory. Tried",
            "batch size",
        ),
        ("", "", ""),
        ("only this", "only this", ""),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '/data/{x}'",
            "FileNotFoundError",
            "'/data/{x}'",
        ),
    ],
)
def test_the_telling_line(tail: str, line: str, hint: str) -> None:
    found, step = telling_line(tail)
    assert line in found and hint in step


def test_the_first_rank_that_failed_by_itself_is_named() -> None:
    exits = [
        RankExit(0, 143, 15, time=2.0, ended_by_platform=True),
        RankExit(3, 1, time=1.0),
        RankExit(1, 1, time=1.5),
    ]
    ending = diagnose_ranks(exits, {3: TRACEBACK}, out_of_memory=False, memory_mb=0, node=1)
    assert (ending.rank, ending.node, ending.exit_code, ending.cause) == (3, 1, 1, "user")
    assert "mindspore" in ending.message and ending.line.startswith("ModuleNotFoundError")
    assert (ending.reason, ending.place) == ("missing_module", "/job/code/train.py:3")


def test_a_crash_after_the_training_is_not_told_as_a_meeting_that_failed() -> None:
    # Rank 14 had met the others, after some warnings, had trained and was leaving.
    exits = [
        RankExit(14, 139, signal.SIGSEGV, time=1.0),
        RankExit(15, 143, 15, time=2.0, ended_by_platform=True),
    ]
    tails = {rank: corpus_text("ms_crash_after_training") for rank in (14, 15)}
    ending = diagnose_ranks(exits, tails, out_of_memory=False, memory_mb=0, node=1)
    assert (ending.rank, ending.reason, ending.follows) == (14, "unknown", False)
    assert ending.message == "Rank 14 was ended by signal 11 (SIGSEGV)."
    assert "native code" in ending.hint


def test_what_was_said_in_passing_does_not_explain_a_crash() -> None:
    tail = "[WARNING] store: Connection reset by peer, once more\n"
    lost = diagnose_ranks([RankExit(1, 1, time=1.0)], {1: tail}, out_of_memory=False, memory_mb=0)
    assert (lost.reason, lost.follows) == ("peer_gone", True)
    crashed = diagnose_ranks([RankExit(1, 139, 11, time=1.0)], {1: tail}, out_of_memory=False, memory_mb=0)
    assert (crashed.reason, crashed.follows) == ("unknown", False)


def test_a_rank_that_lost_its_peer_is_not_blamed() -> None:
    # Rank 0 saw its peer go away and was gone first; rank 1 is the one that failed.
    exits = [RankExit(0, 1, time=1.0), RankExit(1, 1, time=1.2)]
    tails = {0: corpus_text("gloo_peer_died"), 1: TRACEBACK}
    ending = diagnose_ranks(exits, tails, out_of_memory=False, memory_mb=0)
    assert (ending.rank, ending.reason, ending.follows) == (1, "missing_module", False)


def test_a_rank_that_the_platform_ended_in_its_last_moment_is_blamed_when_its_log_says_so() -> None:
    exits = [RankExit(0, 1, time=1.0), RankExit(1, 143, 15, time=1.3, ended_by_platform=True)]
    tails = {0: corpus_text("gloo_peer_died"), 1: corpus_text("key_error")}
    ending = diagnose_ranks(exits, tails, out_of_memory=False, memory_mb=0)
    assert (ending.rank, ending.line) == (1, "KeyError: 'momentum'")
    # Without such a log the rank that failed by itself stays the one to name.
    tails[1] = "epoch 1\nepoch 2\n"
    ending = diagnose_ranks(exits, tails, out_of_memory=False, memory_mb=0)
    assert (ending.rank, ending.reason, ending.follows) == (0, "peer_gone", True)


def test_a_rank_that_waited_in_vain_names_what_it_waited_for() -> None:
    exits = [RankExit(0, 1, time=9.0), RankExit(1, 143, 15, time=9.1, ended_by_platform=True)]
    tails = {0: corpus_text("tcpstore_timeout"), 1: ""}
    ending = diagnose_ranks(exits, tails, out_of_memory=False, memory_mb=0)
    assert ending.rank == 0 and "only 1 of 2 ranks came" in ending.message


def test_a_launchers_files_tell_the_reason() -> None:
    exits = [RankExit(0, 1, time=1.0)]
    files = {"worker_0.log": corpus_text("gloo_peer_died"), "worker_1.log": TRACEBACK}
    ending = diagnose_ranks(
        exits, {0: "Worker process exit."}, out_of_memory=False, memory_mb=0, launcher_tails=files
    )
    assert (ending.stream, ending.reason) == ("worker_1.log", "missing_module")
    # What the rank's own log explains is not looked for elsewhere.
    ending = diagnose_ranks(
        exits, {0: corpus_text("disk_full")}, out_of_memory=False, memory_mb=0, launcher_tails=files
    )
    assert (ending.stream, ending.reason) == ("", "disk_full")


def test_an_unknown_cause_says_so() -> None:
    ending = diagnose_ranks(
        [RankExit(0, 3)], {0: corpus_text("silent_exit")}, out_of_memory=False, memory_mb=0
    )
    assert ending.reason == "unknown" and "unknown" in ending.hint
    assert ending.message == "Rank 0 ended with exit code 3: step 1."
    ending = diagnose_ranks([RankExit(0, 3)], {}, out_of_memory=False, memory_mb=0)
    assert ending.message == "Rank 0 ended with exit code 3."


def test_a_fault_of_the_device_is_not_the_users() -> None:
    ending = diagnose_ranks([RankExit(0, 1)], {0: corpus_text("cuda_ecc")}, out_of_memory=False, memory_mb=0)
    assert ending.cause == "node"


def test_a_signal_is_named_with_what_the_log_adds() -> None:
    tails = {0: corpus_text("segfault_faulthandler")}
    ending = diagnose_ranks([RankExit(0, 139, 11)], tails, out_of_memory=False, memory_mb=0)
    assert ending.code == "signal" and "SIGSEGV" in ending.message and "PYTHONFAULTHANDLER" in ending.hint
    ending = diagnose_ranks([RankExit(0, 137, 9)], {0: "epoch 3"}, out_of_memory=False, memory_mb=0)
    assert ending.message == "Rank 0 was ended by signal 9 (SIGKILL)." and ending.line == "epoch 3"


def test_out_of_memory_is_told_apart_from_a_crash() -> None:
    killed = [RankExit(0, 137, 9, time=1.0)]
    assert diagnose_ranks(killed, {}, out_of_memory=True, memory_mb=2048).code == "out_of_memory"
    crash = diagnose_ranks(killed, {}, out_of_memory=False, memory_mb=2048)
    assert crash.code == "signal" and "SIGKILL" in crash.message


def test_no_failure_is_completed() -> None:
    assert diagnose_ranks([RankExit(0, 0)], {}, out_of_memory=False, memory_mb=0).outcome == "completed"
