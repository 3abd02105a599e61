"""Folders that outlive jobs: where they lie, and their quota."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from trainshed.model.launch_plan import KeptFolder
from trainshed.runner import kept_folders
from trainshed.runner.kept_folders import KeptFoldersWatch, kept_folder_path, measure_folder


def _wait_for(watch: KeptFoldersWatch) -> None:
    deadline = time.monotonic() + 90
    while watch.check() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _wait_for_the_first_look(watch: KeptFoldersWatch) -> None:
    deadline = time.monotonic() + 90
    while not watch._allowed:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_each_user_has_a_home_and_the_workspace_one_data_folder(tmp_path: Path) -> None:
    homes = {kept_folder_path(tmp_path, KeptFolder("home", name, "/home/x")) for name in ("a", "b")}
    assert len(homes) == 2
    assert kept_folder_path(tmp_path, KeptFolder("data", "", "/data")) == tmp_path / "data"


def test_folders_that_are_made_have_the_permissions_of_the_shared_one(tmp_path: Path) -> None:
    tmp_path.chmod(0o2770)
    before = os.umask(0o077)
    try:
        for name in ("a", "b", "b"):
            folder = kept_folder_path(tmp_path / "workspace", KeptFolder("home", name, "/home/x"))
            kept_folders._make_folder(folder, 0o2770)
    finally:
        os.umask(before)
    for path in ("workspace", "workspace/home", "workspace/home/a", "workspace/home/b"):
        assert (tmp_path / path).stat().st_mode & 0o7777 == 0o2770


def test_a_file_with_two_names_counts_once_and_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(bytes(1 << 20))
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "a").write_bytes(os.urandom(1 << 20))
    os.link(root / "a", root / "sub" / "b")
    os.symlink(outside, root / "c")
    assert 1 << 20 <= measure_folder(root, threading.Event()) < 2 << 20


def test_a_job_that_fills_the_folders_is_ended(tmp_path: Path) -> None:
    watch = KeptFoldersWatch(tmp_path, 1 << 20)
    kept_folders._LOOK_EVERY, before = 0.05, kept_folders._LOOK_EVERY
    try:
        watch.start()
        _wait_for_the_first_look(watch)
        assert watch.check() is None
        (tmp_path / "large").write_bytes(os.urandom(70 << 20))
        _wait_for(watch)
        ending = watch.check()
        assert ending is not None and ending.code == "kept_folders_full" and "kept_quota_gb" in ending.hint
    finally:
        kept_folders._LOOK_EVERY = before
        watch.stop()


def test_a_workspace_over_its_quota_may_still_clean_up(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(os.urandom(4 << 20))
    watch = KeptFoldersWatch(tmp_path, 1 << 20)
    kept_folders._LOOK_EVERY, before = 0.05, kept_folders._LOOK_EVERY
    try:
        watch.start()
        _wait_for_the_first_look(watch)
        time.sleep(0.3)
        assert watch.check() is None
    finally:
        kept_folders._LOOK_EVERY = before
        watch.stop()
