"""Making the places of a sandbox in folders that several nodes share."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainshed.runner.sandbox.stage import make_entry, open_beneath

NODES = 8


def test_nodes_that_make_the_same_folders_at_once_do_not_mind(tmp_path: Path) -> None:
    start = threading.Barrier(NODES)

    def make(turn: int) -> None:
        start.wait(90)
        os.close(open_beneath(tmp_path, (f"turn-{turn}", "a", "b"), create=True))

    with ThreadPoolExecutor(NODES) as pool:
        for turn in range(50):
            list(pool.map(make, [turn] * NODES))
    assert sum(1 for _ in tmp_path.rglob("b")) == 50


def test_what_is_there_already_stays_and_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "link").symlink_to("/nowhere")
    parent = os.open(tmp_path, os.O_PATH)
    make_entry(parent, "file", False, None)
    make_entry(parent, "link", True, None)
    os.close(parent)
    assert (tmp_path / "file").read_text() == "kept"
    with pytest.raises(NotADirectoryError):
        open_beneath(tmp_path, ("link", "below"), create=True)
    assert (tmp_path / "link").is_symlink()
