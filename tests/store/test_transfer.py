"""Folders to the store and back: faithful, bounded, and never outside their root."""

from __future__ import annotations

import errno
import os
import socket
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainshed.model.errors import InvalidInput, NotFound, Unavailable
from trainshed.store import file_copy, folder_tree, transfer
from trainshed.store.external.store import ExternalStore
from trainshed.store.object_store import ObjectStore
from trainshed.store.transfer import Skipped, download_tree, upload_tree


def tree_of(folder: Path) -> dict[str, bytes | None]:
    """Relative path -> bytes, None for folders."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def test_a_tree_comes_back_as_it_was(store: ObjectStore, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep/er").mkdir(parents=True)
    (source / "empty/inside").mkdir(parents=True)
    (source / "run.sh").write_text("#!/bin/sh")
    (source / "run.sh").chmod(0o755)
    (source / "zero").touch()
    for number in range(100):
        (source / "deep/er" / f"文 件{number}").write_bytes(os.urandom(number * 100))
    (source / "big").write_bytes(os.urandom(5_000_000))
    seen: list[tuple[int, int]] = []
    summary = upload_tree(
        store, source, "data", "in/put", on_progress=lambda files, size: seen.append((files, size))
    )
    assert (summary.files, summary.folders, summary.skipped) == (103, 1, ())
    assert seen[-1] == (103, summary.bytes) and len(seen) == 103
    assert store.info("data", "in/put/run.sh").metadata == {"mode": "755"}
    target = tmp_path / "target"
    back = download_tree(store, "data", "in/put/", target)
    assert (back.files, back.bytes, back.folders) == (103, summary.bytes, 1)
    assert tree_of(target) == tree_of(source)
    assert stat.S_IMODE((target / "run.sh").stat().st_mode) == 0o755
    assert stat.S_IMODE((target / "big").stat().st_mode) == 0o644


def test_one_object_lands_under_its_own_name(store: ObjectStore, tmp_path: Path) -> None:
    store.put("data", "a/b.txt", b"x")
    download_tree(store, "data", "a/b.txt", tmp_path / "t")
    assert tree_of(tmp_path / "t") == {"b.txt": b"x"}


def test_an_empty_folder_is_a_valid_input_and_a_missing_one_is_not(
    store: ObjectStore, tmp_path: Path
) -> None:
    store.put_folder("data", "empty")
    assert download_tree(store, "data", "empty/", tmp_path / "t").files == 0
    assert (tmp_path / "t").is_dir()
    for wrong in ("nothing/", "nothing"):
        with pytest.raises(NotFound):
            download_tree(store, "data", wrong, tmp_path / "u")
    with pytest.raises(NotFound):
        download_tree(store, "no-bucket", "", tmp_path / "u")
    store.create_bucket("empty-bucket", "w")
    assert download_tree(store, "empty-bucket", "", tmp_path / "v").files == 0
    with pytest.raises(InvalidInput):
        upload_tree(store, tmp_path / "not-there", "data", "x/")
    with pytest.raises(NotFound):
        upload_tree(store, tmp_path, "no-bucket", "x/")


def test_hostile_keys_write_nothing_outside(store: ObjectStore, tmp_path: Path) -> None:
    bad = [
        "../x",
        "/abs",
        "a/../../x",
        "..",
        ".",
        "a//b",
        "./y",
        "x/./y",
        "n" * 256,
        "d/" + "n" * 300,
        "//",
        "/",
    ]
    if isinstance(store, ExternalStore):
        # The endpoint has files itself, and takes no longer names than they have.
        bad = [key for key in bad if "n" * 256 not in key]
    for key in ["p/" + key for key in bad] + ["p/good", "p/a\\b", "p/new\nline"]:
        store.put("data", key, b"x")
    target = tmp_path / "deep" / "target"
    summary = download_tree(store, "data", "p/", target)
    assert {skipped.path for skipped in summary.skipped} == {"p/" + key for key in bad}
    assert summary.skipped_count == len(bad)
    assert tree_of(tmp_path / "deep") == {
        "target": None,
        "target/good": b"x",
        "target/a\\b": b"x",
        "target/new\nline": b"x",
    }


def test_a_file_cannot_be_a_folder_too(store: ObjectStore, tmp_path: Path) -> None:
    for key in ("a", "a-b", "a.c/x", "a/b", "a/b/c", "a/z", "a0", "f/", "f/g"):
        store.put("data", key, b"x" if not key.endswith("/") else b"")
    for number in range(3):
        target = tmp_path / str(number)
        summary = download_tree(store, "data", "", target)
        assert tree_of(target) == {
            "a": b"x",
            "a-b": b"x",
            "a.c": None,
            "a.c/x": b"x",
            "a0": b"x",
            "f": None,
            "f/g": b"x",
        }
        assert [skipped.path for skipped in summary.skipped] == ["a/b", "a/b/c", "a/z"]


def test_links_in_the_target_are_not_followed(store: ObjectStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    target = tmp_path / "target"
    target.mkdir()
    (target / "folder").symlink_to(outside)
    (target / "file").symlink_to(outside / "file")
    store.put("data", "folder/planted", b"x")
    store.put("data", "file", b"new")
    summary = download_tree(store, "data", "", target)
    assert tree_of(outside) == {"file": b"mine"}
    assert (target / "file").read_bytes() == b"new" and not (target / "file").is_symlink()
    assert [skipped.path for skipped in summary.skipped] == ["folder/planted"]


def test_a_folder_in_the_place_of_a_file_is_told(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "t" / "name").mkdir(parents=True)
    store.put("data", "name", b"x")
    summary = download_tree(store, "data", "", tmp_path / "t")
    assert [skipped.path for skipped in summary.skipped] == ["name"]
    assert tree_of(tmp_path / "t") == {"name": None}


def test_upload_takes_only_regular_files(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (source / "link").symlink_to(secret)
    (source / "folder-link").symlink_to(tmp_path)
    (source / "dangling").symlink_to("nowhere")
    os.mkfifo(source / "fifo")
    monkeypatch.chdir(source)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        (source / "good").write_text("good")
        os.close(os.open(os.fsencode(source) + b"/bad\xff", os.O_CREAT | os.O_WRONLY))
        summary = upload_tree(store, source, "data", "out")
    assert [info.key for info in store.walk("data")] == ["out/good"]
    assert {skipped.path: skipped.reason for skipped in summary.skipped} == {
        "link": "it is a symbolic link",
        "folder-link": "it is a symbolic link",
        "dangling": "it is a symbolic link",
        "fifo": "it is not a regular file",
        "socket": "it is not a regular file",
        "bad�": "the name cannot be an object key",
    }


def test_a_file_swapped_for_a_link_after_the_listing_is_not_followed(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job changes its output folder while it is uploaded: every step is taken by descriptor."""
    source = tmp_path / "source"
    (source / "folder").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "inner").write_text("secret")
    (source / "file").write_text("x")
    (source / "gone").write_text("x")
    (source / "folder" / "inner").write_text("x")
    walk = folder_tree.FolderTree.walk

    def swap(self: folder_tree.FolderTree, skip: Any) -> Any:
        paths = list(walk(self, skip))
        (source / "file").unlink()
        (source / "file").symlink_to(tmp_path / "outside" / "inner")
        (source / "gone").unlink()
        (source / "folder").rename(source / "moved")
        (source / "folder").symlink_to(tmp_path / "outside")
        return paths

    monkeypatch.setattr(folder_tree.FolderTree, "walk", swap)
    summary = upload_tree(store, source, "data", "")
    assert summary.files == 0 and list(store.walk("data")) == []
    assert sorted(skipped.path for skipped in summary.skipped) == ["file", "folder/inner", "gone"]


def test_a_growing_file_is_taken_as_long_as_it_was(store: ObjectStore, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    log = source / "log"
    log.write_bytes(b"0" * 2_000_000)
    stop = threading.Event()

    def grow() -> None:
        with log.open("ab") as file:
            while not stop.is_set():
                file.write(b"1" * 100_000)
                file.flush()
                if file.tell() > 300_000_000:
                    return

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        summary = upload_tree(store, source, "data", "")
    finally:
        stop.set()
        writer.join()
    assert summary.files == 1
    size = store.info("data", "log").size
    assert 2_000_000 <= size <= log.stat().st_size
    with store.open("data", "log") as file:
        assert file.read() == (b"0" * 2_000_000 + b"1" * (size - 2_000_000))


def test_an_unwritable_target_is_told(store: ObjectStore, tmp_path: Path) -> None:
    store.put("data", "k", b"x" * 2_000_000)
    full = Path("/dev/full")
    assert full.exists()
    with full.open("wb") as file, pytest.raises(OSError, match="No space"):
        store.fetch_to_file("data", "k", file.fileno())

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "fetch_to_file", fail)
        with pytest.raises(Unavailable, match="No space left"):
            download_tree(store, "data", "", tmp_path / "t")
    assert tree_of(tmp_path / "t") == {}


def test_an_error_of_the_store_stops_the_upload(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        (tmp_path / f"f{number}").write_text("x")
    calls = []

    def fail(*arguments: Any, **_: Any) -> None:
        calls.append(arguments)
        raise Unavailable("no more", code="disk_full")

    monkeypatch.setattr(store, "put", fail)
    with pytest.raises(Unavailable, match="no more"):
        upload_tree(store, tmp_path, "data", "")
    assert len(calls) < 100


def test_many_skipped_are_counted_but_not_all_listed(store: ObjectStore, tmp_path: Path) -> None:
    for number in range(1100):
        (tmp_path / f"link{number}").symlink_to("x")
    summary = upload_tree(store, tmp_path, "data", "")
    assert summary.skipped_count >= 1100 and len(summary.skipped) == 1000
    assert Skipped("link0", "it is a symbolic link") in summary.skipped


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=st.sets(st.text(alphabet="ab./\\é\n", min_size=1, max_size=8), max_size=12))
def test_no_key_ever_leaves_the_folder(
    store: ObjectStore, tmp_path_factory: pytest.TempPathFactory, keys: set[str]
) -> None:
    store.delete_prefix("data", "")
    for key in keys:
        store.put("data", key, b"x")
    outer = tmp_path_factory.mktemp("outer")
    summary = download_tree(store, "data", "", outer / "target")
    assert os.listdir(outer) == ["target"]
    files = [path for path in (outer / "target").rglob("*") if path.is_file()]
    assert len(files) == summary.files
    assert summary.files + summary.folders + summary.skipped_count == len(keys)


def test_only_what_changed_is_sent_again(store: ObjectStore, tmp_path: Path) -> None:
    for name in ("same", "longer", "other", "mode"):
        (tmp_path / "in" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_bytes(b"the first content")
    upload_tree(store, tmp_path / "in", "data", "out/")
    before = {info.key: info.modified_at for info in store.walk("data", "out/")}
    (tmp_path / "in" / "longer").write_bytes(b"the first content and more")
    (tmp_path / "in" / "other").write_bytes(b"another content !")
    (tmp_path / "in" / "mode").chmod(0o755)
    (tmp_path / "in" / "new").write_bytes(b"")
    summary = upload_tree(store, tmp_path / "in", "data", "out/", only_changed=True)
    assert summary.files == 4 and summary.unchanged == 1
    assert store.info("data", "out/same").modified_at == before["out/same"]
    download_tree(store, "data", "out/", tmp_path / "back")
    assert tree_of(tmp_path / "in") == tree_of(tmp_path / "back")
    assert store.info("data", "out/mode").metadata == {"mode": "755"}


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_large_file_is_told_step_by_step_and_can_be_ended(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(transfer, "_LARGE", 1 << 20)
    monkeypatch.setattr(file_copy, "_STEP", 1 << 20)
    content = os.urandom(3 << 20) + b"end"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "large.bin").write_bytes(content)
    told: list[tuple[int, int]] = []

    def move(progress: Any) -> None:
        if way == "up":
            upload_tree(store, tmp_path / "in", "data", "", on_progress=progress)
        else:
            download_tree(store, "data", "", tmp_path / "out", on_progress=progress)

    if way == "down":
        upload_tree(store, tmp_path / "in", "data", "")
    move(lambda files, size: told.append((files, size)))
    assert told == [(0, 1 << 20), (0, 2 << 20), (0, 3 << 20), (0, len(content)), (1, len(content))]
    if way == "down":
        assert (tmp_path / "out" / "large.bin").read_bytes() == content

    def stop(files: int, size: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        move(stop)
    assert store.info("data", "large.bin").size == len(content)
    if way == "down":
        assert os.listdir(tmp_path / "out") == ["large.bin"]


@pytest.mark.parametrize("nameless", [True, False])
def test_a_file_takes_the_place_of_an_older_one_and_leaves_no_traces(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nameless: bool
) -> None:
    if not nameless:
        create = os.open

        def refuse(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "Operation not supported")
            return create(path, flags, *arguments, **options)

        monkeypatch.setattr(folder_tree.os, "open", refuse)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_bytes(b"old")
    (tmp_path / "elsewhere").write_bytes(b"mine")
    (tmp_path / "out" / "b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "out" / "c").mkdir()
    for key in ("a", "b", "c", "d"):
        store.put("data", key, b"new")
    summary = download_tree(store, "data", "", tmp_path / "out")
    assert [skipped.path for skipped in summary.skipped] == ["c"]
    assert tree_of(tmp_path / "out") == {"a": b"new", "b": b"new", "c": None, "d": b"new"}
    assert (tmp_path / "elsewhere").read_bytes() == b"mine"
    assert stat.S_IMODE((tmp_path / "out" / "a").stat().st_mode) == 0o644
