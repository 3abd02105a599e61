"""Files that survive a crash whole."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trainshed import durable


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is made durable, and when the new file takes its name."""
    steps: list[str] = []
    sync, replace = os.fsync, os.replace

    def note_sync(descriptor: int) -> None:
        steps.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        sync(descriptor)

    def note_replace(self: Path, target: Path) -> None:
        steps.append(f"rename {self.name}")
        replace(self, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "replace", note_replace)
    return steps


def test_a_file_takes_its_name_when_its_bytes_are_on_the_disk(tmp_path: Path, order: list[str]) -> None:
    durable.write_durably(tmp_path / "status.json", {"stage": "training"})
    draft = f".status.json.{os.getpid()}.tmp"
    assert order == [f"sync {draft}", f"rename {draft}"]
    assert json.loads((tmp_path / "status.json").read_text()) == {"stage": "training"}


def test_a_replaced_file_is_there_after_a_crash(tmp_path: Path, order: list[str]) -> None:
    durable.replace_file(tmp_path / "key.pem", b"key", 0o640)
    assert order[-1] == f"sync {tmp_path.name}"
    assert (tmp_path / "key.pem").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    "write",
    [
        lambda path: durable.write_durably(path, "new"),
        lambda path: durable.replace_file(path, b"new"),
    ],
)
def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    write: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "status.json"
    path.write_text("old")

    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        write(path)
    assert [item.name for item in tmp_path.iterdir()] == ["status.json"]
    assert path.read_text() == "old"
