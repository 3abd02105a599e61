"""The embedded store: what a single process sees."""

from __future__ import annotations

import hashlib
import sqlite3
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from trainshed.model.errors import InvalidInput, NotFound, Unavailable
from trainshed.store import open_store
from trainshed.store.embedded.store import EmbeddedStore


def blob_files(store: EmbeddedStore) -> list[Path]:
    return [path for path in (store.folder / "blobs").rglob("*") if path.is_file()]


def read(store: EmbeddedStore, key: str, bucket: str = "data") -> bytes:
    with store.open(bucket, key) as file:
        return file.read()


def test_a_url_opens_the_store(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/with%20space/store")
    store.create_bucket("data", "w")
    assert (tmp_path / "with space" / "store" / "index.sqlite").exists()
    store.close()
    for wrong in ("s4://bucket", "file://relative", "/plain/path", "file://host/folder"):
        with pytest.raises(InvalidInput):
            open_store(wrong)


def test_blobs_are_read_only_in_a_private_folder(store: EmbeddedStore) -> None:
    store.put("data", "k", b"x")
    [blob] = blob_files(store)
    assert stat.S_IMODE(blob.stat().st_mode) == 0o400 and blob.stat().st_nlink == 1
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700


def test_an_overwrite_leaves_one_blob_and_the_old_reader_its_bytes(store: EmbeddedStore) -> None:
    store.put("data", "k", b"old")
    with store.open("data", "k") as file:
        store.put("data", "k", b"new")
        assert file.read() == b"old"
    assert read(store, "k") == b"new" and len(blob_files(store)) == 1


def test_empty_objects_have_no_file(store: EmbeddedStore) -> None:
    store.put_folder("data", "folder")
    assert store.info("data", "folder/").size == 0
    assert store.info("data", "folder/").etag == hashlib.md5(b"").hexdigest()
    assert read(store, "folder/") == b"" and blob_files(store) == []


@pytest.mark.parametrize("wrong", [{"expected_md5": "0" * 32}, {"expected_sha256": "0" * 64}])
def test_a_wrong_checksum_stores_nothing(store: EmbeddedStore, wrong: dict[str, str]) -> None:
    store.put("data", "k", b"before")
    with pytest.raises(InvalidInput, match="nothing was stored"):
        store.put("data", "k", b"after", **wrong)  # type: ignore[arg-type]
    assert read(store, "k") == b"before" and len(blob_files(store)) == 1
    assert not [
        path for path in (store.folder / "incoming").rglob("*") if path.is_file() and path.suffix != ".lock"
    ]


def test_a_source_that_fails_leaves_nothing(store: EmbeddedStore) -> None:
    def broken() -> Any:
        yield b"some"
        raise ValueError("cut")

    with pytest.raises(ValueError, match="cut"):
        store.put("data", "k", broken())
    with pytest.raises(NotFound):
        store.info("data", "k")
    assert blob_files(store) == [] and store.collect_garbage() == 0


def test_a_copy_shares_the_blob_until_both_are_gone(store: EmbeddedStore) -> None:
    store.put("data", "a", b"bytes", metadata={"m": "1"})
    copy = store.copy("data", "a", "data", "b")
    assert copy.metadata == {"m": "1"} and len(blob_files(store)) == 1
    store.delete("data", "a")
    assert read(store, "b") == b"bytes"
    store.delete("data", "b")
    assert blob_files(store) == []
    store.put("data", "same", b"self")
    store.copy("data", "same", "data", "same")
    assert read(store, "same") == b"self"


def test_a_disk_file_that_is_gone_is_told(store: EmbeddedStore) -> None:
    store.put("data", "k", b"x")
    blob_files(store)[0].unlink()
    with pytest.raises(Unavailable, match="missing from the disk"), store.open("data", "k"):
        pass


def test_a_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    EmbeddedStore(tmp_path).close()
    with sqlite3.connect(tmp_path / "index.sqlite") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(Exception, match="newer version"):
        EmbeddedStore(tmp_path)


def test_many_threads_write_and_read_at_once(store: EmbeddedStore) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(15):
                body = f"{number}-{turn}".encode() * 100
                store.put("data", f"own/{number}", body)
                store.put("data", "shared", body)
                assert read(store, f"own/{number}") == body
                assert len(set(read(store, "shared").split(b"-"))) <= 102
                store.list("data", delimiter="/")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(blob_files(store)) == 9


# --- listing ---

KEYS = st.text(alphabet="ab/é-\U0001f600.", min_size=1, max_size=6)


def test_a_page_costs_what_the_page_holds(store: EmbeddedStore) -> None:
    """Counts the steps of SQLite's machine, not time: 50,000 keys cost a page no more than 500 do."""

    def fill(prefix: str, folders: int, each: int) -> None:
        rows = [
            (f"{prefix}{folder:05}/{number:05}".encode(), folder)
            for folder in range(folders)
            for number in range(each)
        ]
        store._write(
            lambda c: c.executemany(
                "INSERT INTO objects (bucket_id, key, blob, size, md5, sha256, content_type, metadata, modified_at)"
                " VALUES ((SELECT id FROM buckets WHERE name = 'data'), ?, '', 0, '', '', '', '', ?)",
                rows,
            )
        )

    def steps(**query: Any) -> int:
        count = 0

        def tick() -> int:
            nonlocal count
            count += 1
            return 0

        with store._transactions.read() as connection:
            connection.set_progress_handler(tick, 1)
        store.list("data", **query)
        with store._transactions.read() as connection:
            connection.set_progress_handler(None, 1)
        return count

    fill("small/", 50, 10)
    fill("large/", 50, 1000)
    small = steps(prefix="small/", delimiter="/")
    assert len(store.list("data", "large/", delimiter="/").folders) == 50
    assert 0 < steps(prefix="large/", delimiter="/") <= small * 1.1
    first = steps(prefix="large/", limit=100)
    late = steps(prefix="large/", limit=100, after="large/00049/00500")
    assert late <= first * 1.1 and first < 100 * 40


# --- against a model ---


class StoreMachine(RuleBasedStateMachine):
    """A store does what a dictionary does."""

    KEY = st.sampled_from(["a", "a/", "a/b", "a/b/c", "b", "é", "../x"])
    PREFIX = st.sampled_from(["", "a", "a/", "b", "é", "zz/"])

    def __init__(self) -> None:
        super().__init__()
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.store = EmbeddedStore(Path(self.folder.name) / "store")
        self.store.create_bucket("data", "w")
        self.model: dict[str, bytes] = {}

    @rule(key=KEY, data=st.binary(max_size=20))
    def put(self, key: str, data: bytes) -> None:
        self.store.put("data", key, data)
        self.model[key] = data

    @rule(key=KEY)
    def delete(self, key: str) -> None:
        assert self.store.delete("data", key) == (self.model.pop(key, None) is not None)

    @rule(prefix=PREFIX)
    def delete_prefix(self, prefix: str) -> None:
        gone = [key for key in self.model if key.startswith(prefix)]
        assert self.store.delete_prefix("data", prefix) == len(gone)
        for key in gone:
            del self.model[key]

    @rule(key=KEY, to=KEY)
    def copy(self, key: str, to: str) -> None:
        if key in self.model:
            self.store.copy("data", key, "data", to)
            self.model[to] = self.model[key]
        else:
            with pytest.raises(NotFound):
                self.store.copy("data", key, "data", to)

    @rule(prefix=PREFIX, to=st.sampled_from(["c/", "a/", "a"]))
    def copy_prefix(self, prefix: str, to: str) -> None:
        found = {to + key[len(prefix) :]: data for key, data in self.model.items() if key.startswith(prefix)}
        assert self.store.copy_prefix("data", prefix, "data", to) == len(found)
        self.model.update(found)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = EmbeddedStore(self.store.folder)

    @invariant()
    def agrees(self) -> None:
        seen = {}
        for info in self.store.walk("data"):
            with self.store.open("data", info.key) as file:
                seen[info.key] = file.read()
            assert info.etag == hashlib.md5(seen[info.key]).hexdigest()
        assert seen == self.model
        assert list(seen) == sorted(seen, key=str.encode)

    @invariant()
    def keeps_no_blob_too_many(self) -> None:
        with self.store._transactions.read() as connection:
            rows = connection.execute("SELECT DISTINCT blob FROM objects WHERE blob != ''").fetchall()
        assert {path.name for path in blob_files(self.store)} == {row[0] for row in rows}

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
