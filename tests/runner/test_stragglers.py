"""Processes that a dead run left behind."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from trainshed.runner.stragglers import end_stragglers


def test_who_can_write_to_the_log_is_ended_and_who_reads_it_is_not(tmp_path: Path) -> None:
    log, other = tmp_path / "rank-0.log", tmp_path / "other.log"
    log.touch()
    with log.open("ab") as spool, other.open("ab") as elsewhere, log.open("rb") as reader:
        writer = subprocess.Popen(["sleep", "60"], stdout=spool)
        stranger = subprocess.Popen(["sleep", "60"], stdout=elsewhere)
        follower = subprocess.Popen(["sleep", "60"], stdin=reader)
    try:
        assert end_stragglers([log, tmp_path / "missing.log"]) == [writer.pid]
        assert writer.wait(90) == -signal.SIGKILL
        assert stranger.poll() is None and follower.poll() is None
        assert end_stragglers([log]) == []
    finally:
        for process in (writer, stranger, follower):
            process.kill()
            process.wait(90)
