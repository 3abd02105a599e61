"""Trees of inputs: built once, shared, whole whatever happens, and removed when nobody needs them."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from trainshed.model.errors import NotFound
from trainshed.store.embedded import snapshot as embedded_snapshot
from trainshed.store.embedded.store import EmbeddedStore
from trainshed.store.object_store import ObjectStore
from trainshed.store.snapshot import ListedSnapshot
from trainshed.store.staged_tree import StagedTree, TreeCache, measure


def fill(store: ObjectStore, count: int = 5, prefix: str = "set/") -> None:
    store.ensure_bucket("data", "w")
    for number in range(count):
        store.put("data", f"{prefix}{number % 3}/{number:04}.bin", b"content %d" % number)


def obtain(cache: TreeCache, store: ObjectStore, key: str = "set/", **options: Any) -> StagedTree:
    tree = cache.obtain(store, "data", key, **options)
    assert tree is not None
    return tree


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def cache(tmp_path: Path) -> TreeCache:
    return TreeCache(tmp_path / "cache")


def test_a_tree_shares_the_bytes_and_is_there_for_the_second_job(
    store: ObjectStore, cache: TreeCache
) -> None:
    fill(store)
    first, second = obtain(cache, store), obtain(cache, store)
    assert first.was_built and not second.was_built and first.folder == second.folder
    assert contents(first.folder)["1/0004.bin"] == b"content 4" and first.facts.files == 5
    if isinstance(store, EmbeddedStore):
        assert first.facts.copied == 0
        assert all(path.stat().st_nlink == 2 for path in first.folder.rglob("*.bin"))
    else:
        assert first.facts.copied == first.facts.bytes > 0
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in first.folder.rglob("*.bin"))


def test_any_change_makes_another_tree_and_the_old_one_goes_when_unused(
    store: ObjectStore, cache: TreeCache, tmp_path: Path
) -> None:
    fill(store)
    old = obtain(cache, store)
    if isinstance(store, EmbeddedStore):
        store.put("data", "set/0/0000.bin", b"content 0")  # The same bytes are another object nevertheless.
    else:
        store.put("data", "set/0/0000.bin", b"content !")
    new = obtain(cache, store)
    assert new.was_built and new.folder != old.folder
    assert contents(old.folder).keys() == contents(new.folder).keys()
    assert old.folder.is_dir()
    old.close()
    store.put("data", "set/new.bin", b"1", metadata={"mode": "755"})
    newer = obtain(cache, store)
    assert not old.folder.exists() and new.folder.is_dir()
    assert os.access(newer.folder / "new.bin", os.X_OK)
    assert contents(newer.folder).keys() - contents(new.folder).keys() == {"new.bin"}


def test_a_copied_folder_shares_the_tree_but_not_one_with_equal_bytes(
    embedded: EmbeddedStore, cache: TreeCache
) -> None:
    store = embedded
    fill(store)
    first = obtain(cache, store)
    store.copy_prefix("data", "set/", "data", "copy/")
    assert obtain(cache, store, "copy/").folder == first.folder
    fill(store, prefix="equal/")
    assert obtain(cache, store, "equal/").folder != first.folder


def test_one_object_and_a_whole_bucket(store: ObjectStore, cache: TreeCache) -> None:
    fill(store)
    one = obtain(cache, store, "set/1/0004.bin")
    assert contents(one.folder) == {"0004.bin": b"content 4"}
    assert len(contents(obtain(cache, store, "").folder)) == 5
    for missing in ("set/none", "set/none/", "se"):
        with pytest.raises(NotFound):
            cache.obtain(store, "data", missing)
    with pytest.raises(NotFound):
        cache.obtain(store, "nothing", "")


def test_keys_that_cannot_be_files_stay_in_the_store(store: ObjectStore, cache: TreeCache) -> None:
    store.ensure_bucket("data", "w")
    for key in ("s/../../out", "s//x", "s/a", "s/a/b", "s/a.txt", "s/./x", "s/ok/é"):
        store.put("data", key, b"1")
    store.put("data", "s/b/", b"bytes")
    store.put_folder("data", "s/empty/")
    tree = obtain(cache, store, "s/")
    assert contents(tree.folder).keys() == {"a", "a.txt", "ok/é"}
    assert (tree.folder / "empty").is_dir()
    assert tree.facts.files == 3 and tree.facts.skipped == 5


def test_bytes_are_copied_where_no_more_links_are_possible(
    embedded: EmbeddedStore, cache: TreeCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = embedded
    fill(store)
    link, calls = os.link, iter(range(1000))

    def link_some(*arguments: Any, **options: Any) -> None:
        if next(calls) % 2:
            raise OSError(errno.EMLINK, "Too many links")
        link(*arguments, **options)

    monkeypatch.setattr(embedded_snapshot.os, "link", link_some)
    tree = obtain(cache, store)
    assert sorted(contents(tree.folder).values()) == [b"content %d" % number for number in range(5)]
    links = sorted(path.stat().st_nlink for path in tree.folder.rglob("*.bin"))
    assert links == [1, 1, 2, 2, 2] and tree.facts.copied == 2 * len(b"content 0")


def test_a_store_that_can_only_be_listed_is_copied(
    store: ObjectStore, cache: TreeCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    monkeypatch.setattr("trainshed.store.staged_tree.open_snapshot", ListedSnapshot)
    tree = obtain(cache, store)
    assert contents(tree.folder)["1/0001.bin"] == b"content 1"
    assert tree.facts.copied == tree.facts.bytes > 0
    assert not obtain(cache, store).was_built
    # ETags can be forged: the same ones in another place do not lead to this tree.
    fill(store, prefix="other/")
    assert obtain(cache, store, "other/").folder != tree.folder


def test_a_blob_that_vanishes_meanwhile_starts_the_snapshot_again(
    store: ObjectStore, cache: TreeCache
) -> None:
    # More than are fetched at once: the last one is still to come when the third is there.
    fill(store, 120)

    def overwrite(files: int, size: int) -> None:
        if files == 3 and store.info("data", "set/2/0119.bin").size < 20:
            store.put("data", "set/2/0119.bin", b"the newer content of this object")

    tree = obtain(cache, store, on_progress=overwrite)
    assert contents(tree.folder)["2/0119.bin"] == b"the newer content of this object"
    assert tree.facts.digest == measure(store, "data", "set/").digest


def test_a_folder_that_never_stands_still_is_given_up(store: ObjectStore, cache: TreeCache) -> None:
    # More than are fetched at once: the last one is still to come when the third is there.
    fill(store, 120)

    def overwrite(files: int, size: int) -> None:
        if files == 3:
            store.put("data", "set/2/0119.bin", os.urandom(8))

    assert cache.obtain(store, "data", "set/", on_progress=overwrite) is None


def test_an_error_ends_the_building_and_leaves_nothing(
    store: ObjectStore, cache: TreeCache, tmp_path: Path
) -> None:
    fill(store)

    def stop(files: int, size: int) -> None:
        if files == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.obtain(store, "data", "set/", on_progress=stop)
    assert not [name for name in os.listdir(tmp_path / "cache") if name.startswith("new-")]
    assert obtain(cache, store).was_built


def test_many_at_once_build_one_tree(store: ObjectStore, cache: TreeCache) -> None:
    fill(store, 200)
    trees: list[StagedTree] = []
    threads = [threading.Thread(target=lambda: trees.append(obtain(cache, store))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({tree.folder for tree in trees}) == 1
    assert sum(tree.was_built for tree in trees) == 1


def test_a_tree_in_use_is_never_removed(store: ObjectStore, cache: TreeCache) -> None:
    fill(store)
    tree, other = obtain(cache, store), obtain(cache, store)
    assert cache.sweep(unused_for=-1, largest=0, is_current=lambda facts: False) == 0
    tree.close()
    assert cache.sweep(unused_for=-1, largest=0) == 0
    assert len(contents(tree.folder)) == 5
    other.close()
    assert cache.sweep(unused_for=-1, largest=0) == 1
    assert not tree.folder.exists()
    assert store.info("data", "set/0/0000.bin").size == 9
    with store.open("data", "set/0/0000.bin") as file:
        assert file.read() == b"content 0"
    assert obtain(cache, store).was_built


def test_a_sweep_takes_what_is_old_or_out_of_date_and_what_is_too_much(
    embedded: EmbeddedStore, cache: TreeCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = embedded
    fill(store)
    obtain(cache, store).close()
    assert cache.sweep(unused_for=3600, largest=0, is_current=lambda facts: True) == 0
    assert cache.sweep(unused_for=3600, largest=0, is_current=lambda facts: facts.key != "set/") == 1
    monkeypatch.setattr("trainshed.store.staged_tree.open_snapshot", ListedSnapshot)
    sizes = {}
    for age, key in ((300, "set/0/"), (200, "set/1/"), (100, "set/2/")):
        tree = obtain(cache, store, key)
        tree.close()
        sizes[key] = tree.facts.copied
        lock = tree.folder.parent.with_name(tree.facts.digest + ".lock")
        os.utime(lock, (time.time() - age, time.time() - age))
    assert cache.sweep(unused_for=3600, largest=sizes["set/1/"] + sizes["set/2/"]) == 1
    assert not obtain(cache, store, "set/1/").was_built
    assert obtain(cache, store, "set/0/").was_built


@pytest.mark.parametrize("moment", ["building", "using"])
def test_what_a_killed_process_leaves_is_cleared(
    embedded: EmbeddedStore, tmp_path: Path, moment: str
) -> None:
    store = embedded
    fill(store, 50)
    script = f"""
        import os, time
        from pathlib import Path
        from trainshed.store import open_store
        from trainshed.store.staged_tree import TreeCache
        def hang():
            print("here", flush=True)
            time.sleep(60)
        cache, store = TreeCache(Path({str(tmp_path / "cache")!r})), open_store("file://{tmp_path / "store"}")
        tree = cache.obtain(store, "data", "set/", on_progress=lambda files, size: files == 20 and
            {moment == "building"} and hang())
        hang()
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"here\n"
        cache = TreeCache(tmp_path / "cache")
        unfinished = [name for name in os.listdir(tmp_path / "cache") if name.startswith("new-")]
        assert bool(unfinished) == (moment == "building")
        cache.sweep(unused_for=-1, largest=0)
        if moment == "building":
            assert set(unfinished) <= set(os.listdir(tmp_path / "cache"))
        else:
            assert not obtain(cache, store).was_built
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert obtain(cache, store).was_built == (moment == "building")
    assert len(contents(obtain(cache, store).folder)) == 50
    cache.sweep(unused_for=3600, largest=0)
    assert not [name for name in os.listdir(tmp_path / "cache") if name.startswith("new-")]


def test_the_check_of_the_store_is_not_confused_by_trees(embedded: EmbeddedStore, cache: TreeCache) -> None:
    store = embedded
    fill(store)
    obtain(cache, store)
    assert store.verify().is_whole and store.verify().orphans == ()


def test_an_orphan_that_a_tree_links_is_still_found(
    embedded: EmbeddedStore, cache: TreeCache, tmp_path: Path
) -> None:
    store = embedded
    fill(store)
    tree = obtain(cache, store)
    orphan = tmp_path / "store" / "blobs" / "ab" / ("ab" + "0" * 30)
    orphan.parent.mkdir(exist_ok=True)
    os.link(tree.folder / "1" / "0001.bin", orphan)
    assert store.verify().orphans == (orphan.name,)


def test_an_object_that_may_grow_is_copied(embedded: EmbeddedStore, cache: TreeCache) -> None:
    store = embedded
    fill(store)
    store._transactions.write(
        lambda c: c.execute("UPDATE objects SET kind = 'appendable' WHERE key = ?", (b"set/1/0001.bin",))
    )
    store.copy("data", "set/1/0001.bin", "data", "set/copy.bin")
    tree = obtain(cache, store)
    assert [path.name for path in sorted(tree.folder.rglob("*.bin")) if path.stat().st_nlink == 1] == [
        "0001.bin",
        "copy.bin",
    ]
