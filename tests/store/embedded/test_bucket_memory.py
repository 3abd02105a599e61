"""What is remembered of buckets must never outlive a change, whoever makes it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.model.errors import NotFound
from trainshed.store.embedded import bucket_rows
from trainshed.store.embedded.bucket_memory import BucketMemory
from trainshed.store.embedded.commit_watch import CommitWatch, count_commits
from trainshed.store.embedded.store import EmbeddedStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """A store with a bucket."""
    found = EmbeddedStore(tmp_path / "store")
    found.create_bucket("data", "here")
    yield found
    found.close()


def elsewhere(store: EmbeddedStore, code: str) -> None:
    """Run code against the same store in another process."""
    start = (
        "import sys; from pathlib import Path; from trainshed.store.embedded.store import EmbeddedStore;"
        f"store = EmbeddedStore(Path({str(store.folder)!r}));"
    )
    subprocess.run([sys.executable, "-c", start + code + "; store.close()"], check=True, timeout=120)


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of buckets that were asked for in the index."""
    asked: list[str] = []
    real = bucket_rows.find_bucket

    def find(connection: sqlite3.Connection, name: str) -> object:
        asked.append(name)
        return real(connection, name)

    monkeypatch.setattr(bucket_rows, "find_bucket", find)
    return asked


def test_a_bucket_is_looked_up_once(store: EmbeddedStore, lookups: list[str]) -> None:
    for _ in range(10):
        assert store.bucket("data").workspace_id == "here"
    assert lookups == ["data"]


def test_objects_that_we_write_ourselves_do_not_make_us_forget(
    store: EmbeddedStore, lookups: list[str]
) -> None:
    store.bucket("data")
    for number in range(10):
        store.put("data", f"{number}", b"abc")
        assert store.info("data", f"{number}").size == 3
    assert lookups == ["data"]


def test_a_bucket_that_another_process_removes_is_gone_at_once(store: EmbeddedStore) -> None:
    store.put("data", "key", b"abc")
    assert store.bucket("data").workspace_id == "here"
    elsewhere(store, "store.delete('data', 'key'); store.delete_bucket('data')")
    with pytest.raises(NotFound):
        store.bucket("data")
    with pytest.raises(NotFound):
        store.info("data", "key")


def test_a_bucket_that_was_made_again_belongs_to_its_new_owner(store: EmbeddedStore) -> None:
    assert store.bucket("data").workspace_id == "here"
    elsewhere(store, "store.delete_bucket('data'); store.create_bucket('data', 'there')")
    assert store.bucket("data").workspace_id == "there"
    # The change came between two commits of ours: nothing is carried on over it.
    store.put("data", "a", b"1")
    elsewhere(
        store, "store.delete('data', 'a'); store.delete_bucket('data'); store.create_bucket('data', 'away')"
    )
    store.put("data", "b", b"1")
    assert store.bucket("data").workspace_id == "away"


def test_our_own_changes_of_buckets_count_at_once(store: EmbeddedStore) -> None:
    assert store.bucket("data").versioning == ""
    store.set_versioning("data", "Enabled")
    assert store.bucket("data").versioning == "Enabled"
    store.create_bucket("more", "here")
    assert store.bucket("more").workspace_id == "here"
    store.delete_bucket("more")
    with pytest.raises(NotFound):
        store.bucket("more")


def test_a_child_of_a_fork_sees_changes_too(store: EmbeddedStore) -> None:
    assert store.bucket("data").workspace_id == "here"
    told_read, told_write = os.pipe()
    gate_read, gate_write = os.pipe()
    child = os.fork()
    if not child:
        try:
            first = store.bucket("data").workspace_id
            os.read(gate_read, 1)
            os.write(told_write, f"{first} {store.bucket('data').workspace_id}".encode())
        finally:
            os._exit(0)
    elsewhere(store, "store.delete_bucket('data'); store.create_bucket('data', 'there')")
    os.write(gate_write, b".")
    assert os.read(told_read, 100) == b"here there"
    assert os.waitpid(child, 0)[1] == 0
    for descriptor in (told_read, told_write, gate_read, gate_write):
        os.close(descriptor)


def test_every_commit_changes_the_state_and_raises_the_count(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (a)")
    watch = CommitWatch(path)
    seen = [watch.state()]
    assert seen[0] is not None and watch.state() == seen[0]
    for number in range(2000):
        connection.execute("INSERT INTO t VALUES (?)", (number,))
        state, before = watch.state(), seen[-1]
        assert state is not None and before is not None and state not in seen[-3:]
        assert count_commits(state) == count_commits(before) + 1
        seen.append(state)
        if number % 300 == 0:
            # The log begins anew: still no state comes twice.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            seen.append(watch.state() or seen[-1])
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO t VALUES (1)")
    assert watch.state() == seen[-1]
    connection.execute("ROLLBACK")
    assert len(set(seen)) >= 2001
    connection.close()


def test_without_a_log_nothing_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("CREATE TABLE t (a)")
    watch = CommitWatch(path)
    assert watch.state() is None
    before = watch.ask()
    connection.execute("INSERT INTO t VALUES (1)")
    assert watch.ask() != before
    memory, calls = BucketMemory(path), list[int]()

    def load() -> tuple[int, object]:
        calls.append(1)
        return 1, object()

    for _ in range(3):
        memory.find("data", load)  # type: ignore[arg-type]
    assert len(calls) == 3
    connection.close()
