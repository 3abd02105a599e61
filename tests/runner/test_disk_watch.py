"""A job may not fill the disk that the platform lives on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainshed.model.errors import HostUnfit
from trainshed.runner.disk_watch import DiskWatch

MB = 1 << 20


def watch(folder: Path, monkeypatch: pytest.MonkeyPatch, free: int, reserve: int = 8 * MB) -> DiskWatch:
    subject = DiskWatch(folder, reserve)
    monkeypatch.setattr(subject, "_free", lambda: free)
    return subject


def test_a_disk_with_room_is_no_reason_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "big").write_bytes(bytes(6 * MB))
    assert watch(tmp_path, monkeypatch, free=8 * MB).check() is None


def test_the_job_that_fills_the_disk_is_ended_and_the_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "big").write_bytes(bytes(6 * MB))
    ending = watch(tmp_path, monkeypatch, free=7 * MB).check()
    assert ending is not None and (ending.code, ending.cause) == ("disk_full", "user")
    (tmp_path / "sub" / "big").write_bytes(bytes(MB))
    assert watch(tmp_path, monkeypatch, free=7 * MB).check() is None


def test_links_and_shared_files_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "job"
    outside.mkdir()
    folder.mkdir()
    (outside / "blob").write_bytes(bytes(6 * MB))
    os.link(outside / "blob", folder / "blob")
    (folder / "away").symlink_to(outside)
    assert watch(folder, monkeypatch, free=MB).check() is None


def test_no_job_starts_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch(tmp_path, monkeypatch, free=3 * MB).require_room()
    with pytest.raises(HostUnfit) as caught:
        watch(tmp_path, monkeypatch, free=MB).require_room()
    assert caught.value.code == "disk_full"


def test_the_real_disk_is_asked(tmp_path: Path) -> None:
    DiskWatch(tmp_path, 1).require_room()
    with pytest.raises(HostUnfit):
        DiskWatch(tmp_path, 1 << 62).require_room()
