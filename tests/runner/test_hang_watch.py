"""A node that has fallen silent."""

from __future__ import annotations

import os
from pathlib import Path

from trainshed.runner.hang_watch import HangWatch


def test_silence_of_log_and_processor_together(tmp_path: Path) -> None:
    logs = {rank: tmp_path / f"rank-{rank}" for rank in (0, 1)}
    logs[0].write_text("a")
    used = [10.0]
    watch = HangWatch(60, logs, lambda: used[0])
    assert not watch.look(0)
    assert not watch.look(50)
    # Work without a word, then a word without work: neither is silence.
    used[0] += 5
    assert not watch.look(100)
    logs[1].write_text("b")
    assert not watch.look(150)
    assert not watch.look(205)
    assert watch.look(211) and watch.silent_since > 0
    assert not watch.look(220)
    # A heartbeat of a few milliseconds is no work; a line is.
    used[0] += 0.01
    assert not watch.look(230) and watch.silent_since
    logs[0].write_text("abc")
    assert watch.look(240) and watch.silent_since == 0


def test_it_is_off_by_default(tmp_path: Path) -> None:
    watch = HangWatch(0, {0: tmp_path / "x"}, lambda: 0.0)
    assert not any(watch.look(now) for now in (0.0, 1e6, 1e9))


def test_the_rank_that_fell_silent_first_is_named(tmp_path: Path) -> None:
    logs = {rank: tmp_path / f"rank-{rank}" for rank in range(12)}
    for rank, path in logs.items():
        path.write_text("x")
        os.utime(path, (1000.0 + rank, 1000.0 + rank))
    os.utime(logs[5], (900.0, 900.0))
    ending = HangWatch(1800, logs, lambda: 0.0).ending(node=2, now=3000.0)
    assert (ending.outcome, ending.cause, ending.code) == ("failed", "limit", "hang")
    assert (ending.rank, ending.node, ending.time) == (5, 2, 900.0)
    assert "for 30 min" in ending.message and "rank 5 was last heard 35 min ago" in ending.message
    assert "4 more ranks" in ending.message
    logs[3].write_text("")
    assert "rank 3 never wrote" in HangWatch(1800, logs, lambda: 0.0).ending(0, 3000.0).message
