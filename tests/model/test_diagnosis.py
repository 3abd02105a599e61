"""Why a job failed, in words."""

from __future__ import annotations

import pytest

from trainshed.model.attempt import RankExit
from trainshed.model.diagnosis import diagnose_ranks, telling_line

TRACEBACK = """starting
Traceback (most recent call last):
  File "/job/code/train.py", line 3, in <module>
    import mindspore
ModuleNotFoundError: No module named 'mindspore'
"""


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
            "FileNotFoundError: [Errno 2] No such file or directory: '/data/x'",
            "FileNotFoundError",
            "'/data/x'",
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
    ending = diagnose_ranks(exits, {3: TRACEBACK}, out_of_memory=False, memory_mb=0)
    assert (ending.rank, ending.exit_code, ending.cause) == (3, 1, "user")
    assert "mindspore" in ending.message and ending.line.startswith("ModuleNotFoundError")


def test_out_of_memory_is_told_apart_from_a_crash() -> None:
    killed = [RankExit(0, 137, 9, time=1.0)]
    assert diagnose_ranks(killed, {}, out_of_memory=True, memory_mb=2048).code == "out_of_memory"
    crash = diagnose_ranks(killed, {}, out_of_memory=False, memory_mb=2048)
    assert crash.code == "signal" and "SIGKILL" in crash.message


def test_no_failure_is_completed() -> None:
    assert diagnose_ranks([RankExit(0, 0)], {}, out_of_memory=False, memory_mb=0).outcome == "completed"
