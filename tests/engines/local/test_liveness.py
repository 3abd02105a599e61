"""Proof of life by lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from trainshed.engines.local.liveness import is_alive, take_lock


def test_nobody_is_alive_without_a_file_or_without_a_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_alive(path)
    path.touch()
    assert not is_alive(path)


def test_only_one_can_take_it_and_asking_takes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = take_lock(path)
    assert lock is not None
    assert is_alive(path)
    assert take_lock(path) is None
    os.close(lock)
    assert not is_alive(path)
    again = take_lock(path)
    assert again is not None
    os.close(again)


def test_it_passes_to_a_child_without_a_gap_and_falls_with_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = take_lock(path)
    assert lock is not None
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], pass_fds=(lock,))
    os.close(lock)
    try:
        assert is_alive(path)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(90)
    assert not is_alive(path)
