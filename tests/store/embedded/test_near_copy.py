"""Copying many small objects within the store's own machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.store.embedded import near_copy
from trainshed.store.embedded.near_copy import Group, NearObject, copy_group, group_by_folder, walk_near
from trainshed.store.embedded.store import EmbeddedStore
from trainshed.store.folder_tree import FolderTree


def groups(store: EmbeddedStore, prefix: str) -> list[Group]:
    return list(group_by_folder(walk_near(store, "data", prefix), len(prefix)))


def copy_all(store: EmbeddedStore, prefix: str, folder: Path) -> tuple[int, list[str], list[NearObject]]:
    """How many bytes were copied, which keys were skipped, and which must be asked for anew."""
    folder.mkdir(exist_ok=True)
    sizes, skipped, moved = list[int](), list[str](), list[NearObject]()
    with FolderTree(folder) as tree:
        for group in groups(store, prefix):
            if group.names:
                moved += copy_group(tree, group, sizes.append, lambda key, reason: skipped.append(key))
    return sum(sizes), skipped, moved


def test_all_rows_of_all_pages_come_once_and_in_order(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near_copy, "_PAGE", 10)
    keys = [f"a/{number:04}" for number in range(30)]
    for key in keys:
        store.put("data", key, b"x")
    # Neighbours whose names only begin alike.
    for key in ("a", "a-b", "a!", "a0", "b/0000"):
        store.put("data", key, b"y")
    assert [one.key for one in walk_near(store, "data", "a/")] == keys
    assert len(list(walk_near(store, "data", ""))) == 35


def test_groups_are_neighbours_of_one_folder(store: EmbeddedStore) -> None:
    for number in range(40):
        store.put("data", f"p/one/{number:02}", b"x")
    for key in ("p/", "p/empty", "p/two/a", "p/two/../b", "p/two//c", "p/z"):
        store.put("data", key, b"" if key in ("p/", "p/empty") else b"x")
    found = [(group.above, group.names, [one.key for one in group.objects]) for group in groups(store, "p/")]
    numbers = [f"{number:02}" for number in range(40)]
    assert [one for one in found if one[1]] == [
        (["one"], numbers[:32], [f"p/one/{name}" for name in numbers[:32]]),
        (["one"], numbers[32:], [f"p/one/{name}" for name in numbers[32:]]),
        (["two"], ["a"], ["p/two/a"]),
        ([], ["z"], ["p/z"]),
    ]
    # For others to judge: markers, empty objects and names that lead elsewhere.
    assert [one[2] for one in found if not one[1]] == [["p/"], ["p/empty"], ["p/two/../b"], ["p/two//c"]]


def test_files_arrive_with_their_bytes_and_modes(store: EmbeddedStore, tmp_path: Path) -> None:
    for number in range(50):
        store.put("data", f"p/{number % 3}/{number}", bytes([number]) * (number + 1))
    store.put("data", "p/run.sh", b"#!/bin/sh", metadata={"mode": "755"})
    size, skipped, moved = copy_all(store, "p/", tmp_path / "target")
    assert (size, skipped, moved) == (sum(range(1, 51)) + 9, [], [])
    for number in range(50):
        path = tmp_path / "target" / str(number % 3) / str(number)
        assert path.read_bytes() == bytes([number]) * (number + 1)
        assert path.stat().st_mode & 0o777 == 0o644 and path.stat().st_nlink == 1
    assert (tmp_path / "target" / "run.sh").stat().st_mode & 0o777 == 0o755


def test_an_object_that_grew_is_copied_as_it_was_listed(store: EmbeddedStore, tmp_path: Path) -> None:
    with store.append("data", "p/log", 0) as upload:
        upload.write(b"first")
        upload.commit()
    (tmp_path / "t").mkdir()
    listed = groups(store, "p/")
    blob = Path(listed[0].objects[0].file)
    blob.chmod(0o600)
    with blob.open("ab") as file:
        file.write(b" and what is still being appended")
    with FolderTree(tmp_path / "t") as tree:
        assert copy_group(tree, listed[0], lambda size: None, lambda key, reason: None) == []
    assert (tmp_path / "t" / "log").read_bytes() == b"first"


def test_what_was_overwritten_meanwhile_is_told(store: EmbeddedStore, tmp_path: Path) -> None:
    for key in ("p/a", "p/b", "p/c"):
        store.put("data", key, b"old")
    (listed,) = groups(store, "p/")
    store.put("data", "p/b", b"new")
    (tmp_path / "t").mkdir()
    with FolderTree(tmp_path / "t") as tree:
        moved = copy_group(tree, listed, lambda size: None, lambda key, reason: None)
    assert [one.key for one in moved] == ["p/b"]
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == ["a", "c"]


def test_links_and_folders_in_the_way_are_never_followed(store: EmbeddedStore, tmp_path: Path) -> None:
    for key in ("p/link/a", "p/taken", "p/file", "p/old"):
        store.put("data", key, b"x")
    target, outside = tmp_path / "target", tmp_path / "outside"
    target.mkdir()
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (target / "link").symlink_to(outside)
    (target / "taken").mkdir()
    (target / "file").symlink_to(outside / "secret")
    (target / "old").write_bytes(b"old")
    size, skipped, moved = copy_all(store, "p/", target)
    assert sorted(skipped) == ["p/link/a", "p/taken"] and moved == [] and size == 2
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"
    assert (target / "file").read_bytes() == b"x" and not (target / "file").is_symlink()
    assert (target / "old").read_bytes() == b"x"


def test_files_may_begin_in_the_store(store: EmbeddedStore, tmp_path: Path) -> None:
    for key in ("p/a", "p/b"):
        store.put("data", key, key.encode())
    (listed,) = groups(store, "p/")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a").write_bytes(b"old")
    with FolderTree(tmp_path / "t") as tree:
        place = store.birthplace()
        assert copy_group(tree, listed, lambda size: None, lambda key, reason: None, place) == []
    assert {path.name: path.read_bytes() for path in (tmp_path / "t").iterdir()} == {"a": b"p/a", "b": b"p/b"}
    assert list(Path(place).iterdir()) == []


@pytest.mark.parametrize("birthplace", ["/dev/shm", "/nowhere"])
def test_a_birthplace_elsewhere_is_done_without(
    store: EmbeddedStore, tmp_path: Path, birthplace: str
) -> None:
    for key in ("p/a", "p/b"):
        store.put("data", key, key.encode())
    (listed,) = groups(store, "p/")
    (tmp_path / "t").mkdir()
    sizes = list[int]()
    with FolderTree(tmp_path / "t") as tree:
        assert copy_group(tree, listed, sizes.append, lambda key, reason: None, birthplace) == []
    assert sizes == [3, 3]
    assert {path.name: path.read_bytes() for path in (tmp_path / "t").iterdir()} == {"a": b"p/a", "b": b"p/b"}
