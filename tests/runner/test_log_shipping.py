"""Shipping logs while a job runs: never in the way of its watcher, and never two at once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from trainshed.model.errors import Unavailable
from trainshed.runner.log_archive import ARCHIVE_BUCKET, LogArchive
from trainshed.runner.log_shipping import LogShipping
from trainshed.store.embedded.store import EmbeddedStore


class SlowArchive(LogArchive):
    """Ships when the test lets it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.go_on = threading.Event()
        self.calls = 0

    def ship(self, stream: str, spool: Path, *, final: bool = False) -> None:
        """Wait, then ship."""
        self.calls += 1
        assert self.go_on.wait(90)
        super().ship(stream, spool, final=final)


@pytest.fixture
def archive(tmp_path: Path) -> Any:
    store = EmbeddedStore(tmp_path / "store")
    (tmp_path / "log").write_bytes(b"x" * 25)
    yield SlowArchive(store, "job/", 10, [])
    store.close()


def test_a_store_that_is_away_keeps_nobody_waiting(archive: SlowArchive, tmp_path: Path) -> None:
    shipping = LogShipping(archive, lambda: {"rank-0": tmp_path / "log"}, lambda text: None, is_far=True)
    for _ in range(5):
        shipping.ship()
    assert archive.calls == 1
    archive.go_on.set()
    shipping.finish()
    assert archive.size("rank-0") == 20
    assert [info.size for info in archive._store.walk(ARCHIVE_BUCKET, "job/")] == [10, 10]


def test_near_stores_are_shipped_to_at_once_and_faults_are_noted(
    archive: SlowArchive, tmp_path: Path
) -> None:
    notes: list[str] = []
    archive.go_on.set()
    LogShipping(archive, lambda: {"rank-0": tmp_path / "log"}, notes.append, is_far=False).ship()
    assert archive.size("rank-0") == 20 and notes == []

    def away() -> dict[str, Path]:
        raise Unavailable("gone", code="store_unreachable")

    shipping = LogShipping(archive, away, notes.append, is_far=True)
    shipping.ship()
    shipping.finish()
    assert len(notes) == 1 and "gone" in notes[0]
