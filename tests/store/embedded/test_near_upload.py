"""Small files of this machine that are committed together."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.model.errors import TooLarge
from trainshed.store.embedded.near_upload import group_paths, send_group
from trainshed.store.embedded.store import EmbeddedStore
from trainshed.store.folder_tree import FolderTree
from trainshed.store.transfer import upload_tree


def read(store: EmbeddedStore, key: str) -> bytes:
    with store.open("data", key) as file:
        return file.read()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Some of everything."""
    folder = tmp_path / "results"
    (folder / "deep" / "empty").mkdir(parents=True)
    (folder / "small").write_bytes(b"small")
    (folder / "none").write_bytes(b"")
    (folder / "large").write_bytes(b"x" * ((1 << 18) + 1))
    (folder / "deep" / "run.sh").write_bytes(b"#!/bin/sh")
    (folder / "deep" / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("small")
    return folder


def test_groups_leave_nobody_out() -> None:
    groups = list(group_paths(str(number) for number in range(70)))
    assert [len(group) for group in groups] == [32, 32, 6]
    assert [path for group in groups for path in group] == [str(number) for number in range(70)]
    assert list(group_paths([])) == []


def test_small_files_are_stored_and_the_others_handed_back(store: EmbeddedStore, folder: Path) -> None:
    sizes: list[int] = []
    paths = ["small", "none", "large", "deep/run.sh", "deep/empty/", "link", "gone", "bad\udcff"]
    with FolderTree(folder) as tree:
        alone = send_group(store, tree, paths, "data", "out/", sizes.append)
    assert sorted(sizes) == [0, 5, 9]
    assert set(alone) == {"large", "deep/empty/", "link", "gone", "bad\udcff"}
    assert [info.key for info in store.list("data").objects] == ["out/deep/run.sh", "out/none", "out/small"]
    assert read(store, "out/small") == b"small" and store.info("data", "out/deep/run.sh").metadata == {
        "mode": "755"
    }
    assert store.verify().is_whole and store.verify().orphans == ()


def test_what_is_there_already_is_left_to_be_compared(store: EmbeddedStore, folder: Path) -> None:
    store.put("data", "out/small", b"older")
    with FolderTree(folder) as tree:
        alone = send_group(store, tree, ["small", "none"], "data", "out/", lambda size: None, only_new=True)
    assert alone == ["small"] and read(store, "out/small") == b"older"
    summary = upload_tree(store, folder, "data", "out", only_changed=True)
    assert read(store, "out/small") == b"small"
    assert (summary.files, summary.unchanged) == (3, 1)


def test_a_whole_folder(store: EmbeddedStore, folder: Path) -> None:
    for number in range(100):
        (folder / f"{number:03}").write_bytes(b"%d" % number)
    summary = upload_tree(store, folder, "data", "out")
    assert summary.files == 104 and [skipped.path for skipped in summary.skipped] == ["link"]
    assert all(read(store, f"out/{number:03}") == b"%d" % number for number in range(100))
    assert (
        store.info("data", "out/deep/empty/").size == 0
        and store.info("data", "out/large").size == (1 << 18) + 1
    )
    assert upload_tree(store, folder, "data", "out", only_changed=True).unchanged == 104


def test_a_quota_says_why_it_ends(store: EmbeddedStore, folder: Path) -> None:
    store.set_quota("w1", 0, 1)
    store.create_bucket("limited", "w1")
    with pytest.raises(TooLarge):
        upload_tree(store, folder, "limited", "")
    assert len(store.list("limited").objects) == 1
