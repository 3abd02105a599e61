"""What every store does with buckets and objects."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from trainshed.model.errors import Conflict, InvalidInput, NotAllowed, NotFound
from trainshed.store.external.store import ExternalStore
from trainshed.store.object_store import ObjectStore

Check = Callable[[ObjectStore], None]
KEYS = st.text(alphabet="ab/é-\U0001f600.", min_size=1, max_size=6)


def read(store: ObjectStore, key: str, bucket: str = "data") -> bytes:
    with store.open(bucket, key) as file:
        return file.read()


def test_an_object_comes_back_with_all_that_was_said_of_it(store: ObjectStore) -> None:
    data = os.urandom(3_000_000)
    info = store.put(
        "data", "模型/a b.ckpt", io.BytesIO(data), content_type="x/y", metadata={"mode": "755", "名": "值"}
    )
    assert info.etag == hashlib.md5(data).hexdigest()
    found = store.info("data", "模型/a b.ckpt")
    assert (found.etag, found.size, found.metadata) == (info.etag, info.size, info.metadata)
    assert found.content_type == "x/y" and abs(found.modified_at - info.modified_at) < 5
    assert (
        info.metadata == {"mode": "755", "名": "值"} and info.content_type == "x/y" and info.size == len(data)
    )
    assert read(store, "模型/a b.ckpt") == data
    store.put("data", "pieces", iter([b"ab", b"", b"cd"]))
    assert read(store, "pieces") == b"abcd"


@pytest.mark.parametrize(
    ("start", "length"), [(0, None), (0, 0), (3, 4), (8, 100), (10, None), (50, 5), (0, 10)]
)
def test_a_range_is_what_a_slice_is(store: ObjectStore, start: int, length: int | None) -> None:
    store.put("data", "k", b"0123456789")
    with store.open("data", "k", start, length) as file:
        assert file.read() == b"0123456789"[start : None if length is None else start + length]


def test_a_window_can_be_searched_like_a_file(store: ObjectStore) -> None:
    store.put("data", "k", b"0123456789")
    with store.open("data", "k", 2, 6) as file:
        assert file.seek(-2, os.SEEK_END) == 4
        assert file.read() == b"67"
        file.seek(1)
        assert file.read(2) == b"34" and file.tell() == 3


def test_right_checksums_are_accepted_in_any_case(store: ObjectStore) -> None:
    md5, sha = hashlib.md5(b"x").hexdigest().upper(), hashlib.sha256(b"x").hexdigest().upper()
    store.put("data", "k", b"x", expected_md5=md5, expected_sha256=sha)


@pytest.mark.parametrize("key", ["", "a\0b", "x" * 1025, "\ud800", "é" * 513])
def test_impossible_keys_are_refused(store: ObjectStore, key: str) -> None:
    with pytest.raises(InvalidInput):
        store.put("data", key, b"x")
    with pytest.raises((InvalidInput, NotFound)):
        store.info("data", key)


@pytest.mark.parametrize(
    "key", ["../x", "/abs", "a//b", ".", "a/../b", "%2e", "a\nb", "/".join(["x" * 100] * 8), "'; DROP TABLE"]
)
def test_odd_keys_are_only_keys(store: ObjectStore, key: str) -> None:
    store.put("data", key, key.encode())
    assert read(store, key) == key.encode()
    assert [info.key for info in store.walk("data")] == [key]
    assert store.delete("data", key) and not store.delete("data", key)


def test_buckets_have_their_rules(store: ObjectStore) -> None:
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


def test_the_platforms_own_buckets_appear_at_their_first_use(store: ObjectStore) -> None:
    assert list(store.walk(".code")) == []
    store.put(".jobs", "j/1", b"log")
    assert store.copy_prefix(".jobs", "j/", ".copies", "k/") == 1
    assert [bucket.name for bucket in store.buckets()] == ["data"]
    assert store.buckets("w1") and not store.buckets("w2")
    with pytest.raises(NotAllowed):
        store.delete_bucket(".jobs")


def test_a_copy_may_be_told_other_things_about_itself(store: ObjectStore) -> None:
    store.put("data", "a", b"bytes", content_type="text/plain", metadata={"x": "1"}, attributes={"y": "2"})
    info = store.copy("data", "a", "data", "b", metadata={"z": "3"})
    assert (info.content_type, info.metadata, info.attributes) == ("text/plain", {"z": "3"}, {"y": "2"})
    info = store.copy("data", "a", "data", "a", content_type="x/y", attributes={})
    found = store.info("data", "a")
    assert (found.content_type, found.metadata, found.attributes) == ("x/y", {"x": "1"}, {})
    assert (info.metadata, info.attributes) == ({"x": "1"}, {})
    with store.open("data", "a") as file:
        assert file.read() == b"bytes"


def test_a_prefix_may_be_copied_into_itself(store: ObjectStore) -> None:
    for key in ("a/1", "a/2", "a/b/1", "ab"):
        store.put("data", key, key.encode())
    assert store.copy_prefix("data", "a/", "data", "a/b/") == 3
    assert [info.key for info in store.walk("data")] == ["a/1", "a/2", "a/b/1", "a/b/2", "a/b/b/1", "ab"]
    assert read(store, "a/b/1") == b"a/1" and read(store, "a/b/b/1") == b"a/b/1"
    with pytest.raises(InvalidInput, match="1024"):
        store.copy_prefix("data", "a/", "data", "x" * 1023)
    assert store.copy_prefix("data", "nothing/", "data", "y") == 0


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.sets(KEYS, max_size=25),
    prefix=st.text(alphabet="ab/é", max_size=3),
    delimiter=st.sampled_from(["", "/", "a", "b/"]),
    limit=st.integers(1, 7),
)
@example(keys={"a", "aa"}, prefix="", delimiter="b/", limit=1)
@example(keys={"ab/1", "ab/2", "ab0", "b"}, prefix="", delimiter="b/", limit=1)
def test_listing_is_the_sorted_reference(
    store: ObjectStore, keys: set[str], prefix: str, delimiter: str, limit: int
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


def test_an_overwrite_leaves_the_old_reader_its_bytes(store: ObjectStore) -> None:
    store.put("data", "k", b"old")
    with store.open("data", "k") as file:
        store.put("data", "k", b"new")
        assert file.read() == b"old"
    assert read(store, "k") == b"new"


def test_a_folder_is_an_empty_object(store: ObjectStore) -> None:
    store.put_folder("data", "folder")
    info = store.info("data", "folder/")
    assert (info.size, info.etag) == (0, hashlib.md5(b"").hexdigest()) and read(store, "folder/") == b""
    store.put("data", "folder/", b"bytes")
    assert read(store, "folder/") == b"bytes"


@pytest.mark.parametrize("wrong", [{"expected_md5": "0" * 32}, {"expected_sha256": "0" * 64}])
@pytest.mark.parametrize("size", [5, 17 << 20])
def test_a_wrong_checksum_stores_nothing(
    store: ObjectStore, whole: Check, wrong: dict[str, str], size: int
) -> None:
    store.put("data", "k", b"before")
    with pytest.raises(InvalidInput, match="nothing was stored"):
        store.put("data", "k", bytes(size), **wrong)  # type: ignore[arg-type]
    assert read(store, "k") == b"before"
    whole(store)


@pytest.mark.parametrize("size", [4, 17 << 20])
def test_a_source_that_fails_leaves_nothing(store: ObjectStore, whole: Check, size: int) -> None:
    def broken() -> Any:
        yield bytes(size)
        raise ValueError("cut")

    with pytest.raises(ValueError, match="cut"):
        store.put("data", "k", broken())
    with pytest.raises(NotFound):
        store.info("data", "k")
    whole(store)


def test_a_large_object_is_whole(store: ObjectStore) -> None:
    data = os.urandom((33 << 20) + 7)
    digest = hashlib.md5(data).hexdigest()
    pieces = (data[start : start + 3_000_000] for start in range(0, len(data), 3_000_000))
    info = store.put("data", "big", pieces, metadata={"m": "1"}, expected_md5=digest)
    assert (info.size, info.metadata, store.info("data", "big").size) == (len(data), {"m": "1"}, len(data))
    assert hashlib.md5(read(store, "big")).hexdigest() == digest
    with store.open("data", "big", 20 << 20, 10) as file:
        assert file.read() == data[20 << 20 : (20 << 20) + 10]
    _, file = store.open_object("data", "big")
    with file:
        file.seek(-5, os.SEEK_END)
        assert file.read() == data[-5:]


def test_a_copy_is_an_object_of_its_own(store: ObjectStore, whole: Check) -> None:
    store.put("data", "a", b"bytes", metadata={"m": "1"})
    assert store.copy("data", "a", "data", "b").metadata == {"m": "1"}
    store.delete("data", "a")
    assert read(store, "b") == b"bytes"
    store.copy("data", "b", "data", "b")
    assert read(store, "b") == b"bytes"
    with pytest.raises(NotFound):
        store.copy("data", "a", "data", "c")
    whole(store)


def test_many_threads_write_and_read_at_once(store: ObjectStore) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(8):
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


def test_more_than_a_page_is_listed_and_removed(store: ObjectStore) -> None:
    if isinstance(store, ExternalStore):
        store._at_once(range(1100), lambda number: store.put("data", f"many/{number:04}", b""))
    else:
        for number in range(1100):
            store.put("data", f"many/{number:04}", b"")
    first = store.list("data")
    assert len(first.objects) == 1000 and first.next_after == "many/0999"
    assert len(store.list("data", after=first.next_after).objects) == 100
    assert store.list("data", delimiter="/").folders == ("many/",)
    assert store.delete_prefix("data", "many/") == 1100 and store.list("data").objects == ()


def test_nothing_is_listed_where_nothing_is_asked_for(store: ObjectStore) -> None:
    store.put("data", "k", b"")
    page = store.list("data", limit=0)
    assert (page.objects, page.folders) == ((), ())
    versions = store.list_versions("data").versions
    assert [(one.info.key, one.is_latest, one.is_delete_marker) for one in versions] == [("k", True, False)]
