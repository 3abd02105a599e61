"""The embedded store: what a single process sees."""

from __future__ import annotations

import hashlib
import io
import os
import sqlite3
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from trainshed.model.errors import Conflict, InvalidInput, NotAllowed, NotFound, Unavailable
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
    for wrong in ("s3://bucket", "file://relative", "/plain/path", "file://host/folder"):
        with pytest.raises(InvalidInput):
            open_store(wrong)


def test_an_object_comes_back_with_all_that_was_said_of_it(store: EmbeddedStore) -> None:
    data = os.urandom(3_000_000)
    info = store.put(
        "data", "模型/a b.ckpt", io.BytesIO(data), content_type="x/y", metadata={"mode": "755", "名": "值"}
    )
    assert info.etag == hashlib.md5(data).hexdigest()
    assert store.info("data", "模型/a b.ckpt") == info
    assert (
        info.metadata == {"mode": "755", "名": "值"} and info.content_type == "x/y" and info.size == len(data)
    )
    assert read(store, "模型/a b.ckpt") == data
    store.put("data", "pieces", iter([b"ab", b"", b"cd"]))
    assert read(store, "pieces") == b"abcd"


@pytest.mark.parametrize(
    ("start", "length"), [(0, None), (0, 0), (3, 4), (8, 100), (10, None), (50, 5), (0, 10)]
)
def test_a_range_is_what_a_slice_is(store: EmbeddedStore, start: int, length: int | None) -> None:
    store.put("data", "k", b"0123456789")
    with store.open("data", "k", start, length) as file:
        assert file.read() == b"0123456789"[start : None if length is None else start + length]


def test_a_window_can_be_searched_like_a_file(store: EmbeddedStore) -> None:
    store.put("data", "k", b"0123456789")
    with store.open("data", "k", 2, 6) as file:
        assert file.seek(-2, os.SEEK_END) == 4
        assert file.read() == b"67"
        file.seek(1)
        assert file.read(2) == b"34" and file.tell() == 3


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


def test_right_checksums_are_accepted_in_any_case(store: EmbeddedStore) -> None:
    md5, sha = hashlib.md5(b"x").hexdigest().upper(), hashlib.sha256(b"x").hexdigest().upper()
    store.put("data", "k", b"x", expected_md5=md5, expected_sha256=sha)


def test_a_source_that_fails_leaves_nothing(store: EmbeddedStore) -> None:
    def broken() -> Any:
        yield b"some"
        raise ValueError("cut")

    with pytest.raises(ValueError, match="cut"):
        store.put("data", "k", broken())
    with pytest.raises(NotFound):
        store.info("data", "k")
    assert blob_files(store) == [] and store.collect_garbage() == 0


@pytest.mark.parametrize("key", ["", "a\0b", "x" * 1025, "\ud800", "é" * 513])
def test_impossible_keys_are_refused(store: EmbeddedStore, key: str) -> None:
    with pytest.raises(InvalidInput):
        store.put("data", key, b"x")
    with pytest.raises((InvalidInput, NotFound)):
        store.info("data", key)


@pytest.mark.parametrize(
    "key", ["../x", "/abs", "a//b", ".", "a/../b", "%2e", "a\nb", "x" * 1024, "'; DROP TABLE"]
)
def test_odd_keys_are_only_keys(store: EmbeddedStore, key: str) -> None:
    store.put("data", key, key.encode())
    assert read(store, key) == key.encode()
    assert [info.key for info in store.walk("data")] == [key]
    assert store.delete("data", key) and not store.delete("data", key)


def test_buckets_have_their_rules(store: EmbeddedStore) -> None:
    with pytest.raises(Conflict):
        store.create_bucket("data", "w2")
    with pytest.raises(InvalidInput):
        store.create_bucket("..", "w1")
    with pytest.raises(InvalidInput):
        store.create_bucket(".jobs", "w1")
    store.put("data", "k", b"")
    with pytest.raises(Conflict, match="not empty"):
        store.delete_bucket("data")
    store.delete("data", "k")
    store.delete_bucket("data")
    for use in (
        lambda: store.put("data", "k", b""),
        lambda: store.list("data"),
        lambda: store.delete("data", "k"),
    ):
        with pytest.raises(NotFound, match="no bucket"):
            use()


def test_the_platforms_own_buckets_appear_at_their_first_use(store: EmbeddedStore) -> None:
    assert list(store.walk(".code")) == []
    store.put(".jobs", "j/1", b"log")
    assert store.copy_prefix(".jobs", "j/", ".copies", "k/") == 1
    assert [bucket.name for bucket in store.buckets()] == ["data"]
    assert store.buckets("w1") and not store.buckets("w2")
    with pytest.raises(NotAllowed):
        store.delete_bucket(".jobs")


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


def test_a_copy_may_be_told_other_things_about_itself(store: EmbeddedStore) -> None:
    store.put("data", "a", b"bytes", content_type="text/plain", metadata={"x": "1"}, attributes={"y": "2"})
    info = store.copy("data", "a", "data", "b", metadata={"z": "3"})
    assert (info.content_type, info.metadata, info.attributes) == ("text/plain", {"z": "3"}, {"y": "2"})
    info = store.copy("data", "a", "data", "a", content_type="x/y", attributes={})
    assert store.info("data", "a") == info and (info.metadata, info.attributes) == ({"x": "1"}, {})
    with store.open("data", "a") as file:
        assert file.read() == b"bytes"


def test_a_prefix_may_be_copied_into_itself(store: EmbeddedStore) -> None:
    for key in ("a/1", "a/2", "a/b/1", "ab"):
        store.put("data", key, key.encode())
    assert store.copy_prefix("data", "a/", "data", "a/b/") == 3
    assert [info.key for info in store.walk("data")] == ["a/1", "a/2", "a/b/1", "a/b/2", "a/b/b/1", "ab"]
    assert read(store, "a/b/1") == b"a/1" and read(store, "a/b/b/1") == b"a/b/1"
    assert len(blob_files(store)) == 4
    with pytest.raises(InvalidInput, match="1024"):
        store.copy_prefix("data", "a/", "data", "x" * 1023)
    assert store.copy_prefix("data", "nothing/", "data", "y") == 0


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


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.sets(KEYS, max_size=25),
    prefix=st.text(alphabet="ab/é", max_size=3),
    delimiter=st.sampled_from(["", "/", "a", "b/"]),
    limit=st.integers(1, 7),
)
def test_listing_is_the_sorted_reference(
    store: EmbeddedStore, keys: set[str], prefix: str, delimiter: str, limit: int
) -> None:
    store.delete_prefix("data", "")
    for key in keys:
        store.put("data", key, b"")
    expected: list[tuple[str, str]] = []
    for key in sorted(keys, key=str.encode):
        if not key.startswith(prefix):
            continue
        at = key.find(delimiter, len(prefix)) if delimiter else -1
        entry = ("folder", key[: at + len(delimiter)]) if at >= 0 else ("object", key)
        if entry not in expected:
            expected.append(entry)
    got: list[tuple[str, str]] = []
    after = ""
    while True:
        page = store.list("data", prefix, delimiter=delimiter, after=after, limit=limit)
        assert len(page.objects) + len(page.folders) <= limit
        entries = [("object", i.key) for i in page.objects] + [("folder", folder) for folder in page.folders]
        got += sorted(entries, key=lambda entry: entry[1].encode())
        after = page.next_after
        if not after:
            break
        assert entries
    assert got == expected
    assert [info.key for info in store.walk("data", prefix)] == [
        key for key in sorted(keys, key=str.encode) if key.startswith(prefix)
    ]


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
