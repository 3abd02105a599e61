"""Conditional writes, copies with changes, new names, attributes."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from trainshed.model.errors import Conflict, InvalidInput, NotFound, TrainshedError
from trainshed.store.embedded.store import EmbeddedStore
from trainshed.store.object_store import Condition, ObjectStore

Check = Callable[[ObjectStore], None]


def read(store: ObjectStore, key: str) -> bytes:
    with store.open("data", key) as file:
        return file.read()


def test_a_write_that_depends_on_what_is_there(store: ObjectStore, whole: Check) -> None:
    first = store.put("data", "k", b"1", condition=Condition(if_none_match="*"))
    with pytest.raises(Conflict) as caught:
        store.put("data", "k", b"2", condition=Condition(if_none_match="*"))
    assert caught.value.code == "precondition_failed" and read(store, "k") == b"1"
    second = store.put("data", "k", b"2", condition=Condition(if_match=f'"{first.etag}"'))
    with pytest.raises(Conflict):
        store.put("data", "k", b"3", condition=Condition(if_match=first.etag))
    with pytest.raises(NotFound):
        store.put("data", "missing", b"3", condition=Condition(if_match="*"))
    store.put("data", "k", b"3", condition=Condition(if_match="*", if_none_match=first.etag))
    with pytest.raises(Conflict):
        store.copy("data", "k", "data", "k", condition=Condition(if_match=second.etag))
    assert read(store, "k") == b"3"
    whole(store)


def test_conditions_of_removals(store: ObjectStore) -> None:
    info = store.put("data", "k", b"1")
    with pytest.raises(Conflict):
        store.remove("data", "k", condition=Condition(if_match="other"))
    with pytest.raises(NotFound):
        store.remove("data", "missing", condition=Condition(if_match="*"))
    assert read(store, "k") == b"1"
    assert store.remove("data", "k", condition=Condition(if_match=info.etag)).existed
    with pytest.raises(NotFound):
        store.info("data", "k")


def test_of_many_who_write_only_if_nothing_is_there_one_wins(store: ObjectStore) -> None:
    ends: list[str] = []

    def write(number: int) -> None:
        try:
            store.put("data", "k", b"%d" % number, condition=Condition(if_none_match="*"))
            ends.append("won")
        except TrainshedError as error:
            ends.append(error.code)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert sorted(ends) == ["precondition_failed"] * 7 + ["won"]


def test_attributes_live_beside_metadata(store: ObjectStore) -> None:
    store.put("data", "k", b"x", metadata={"m": "1"}, attributes={"acl": "private", "tagging": "a=1"})
    before = store.info("data", "k")
    after = store.set_attributes("data", "k", {"acl": "public-read", "tagging": None, "cache-control": "no"})
    found = store.info("data", "k")
    assert (after.attributes, after.metadata, after.etag) == (found.attributes, found.metadata, found.etag)
    assert after.attributes == {"acl": "public-read", "cache-control": "no"}
    assert (after.metadata, after.etag) == (before.metadata, before.etag)
    if isinstance(store, EmbeddedStore):
        assert after.modified_at == before.modified_at
    with pytest.raises(NotFound):
        store.set_attributes("data", "missing", {"acl": "x"})
    with pytest.raises(InvalidInput):
        store.set_attributes("data", "k", {"acl": "x" * 70000})
    with store.upload("data", "late", attributes={"a": "1"}) as upload:
        upload.write(b"x")
        assert upload.commit(attributes={"crc32": "2"}).attributes == {"a": "1", "crc32": "2"}


def test_renaming_an_object(store: ObjectStore, whole: Check) -> None:
    store.put("data", "a", b"bytes", metadata={"m": "1"})
    store.put("data", "taken", b"t")
    with pytest.raises(Conflict) as caught:
        store.rename("data", "a", "taken")
    assert caught.value.code == "object_exists"
    with pytest.raises(Conflict):
        store.rename("data", "a", "a")
    info = store.rename("data", "a", "b/c")
    assert info.metadata == {"m": "1"} and read(store, "b/c") == b"bytes"
    with pytest.raises(NotFound):
        store.rename("data", "a", "d")
    assert [one.key for one in store.list("data").objects] == ["b/c", "taken"]
    whole(store)


def test_renaming_a_folder_is_one_step(store: ObjectStore) -> None:
    for key in ("old/", "old/1", "old/deep/2", "older", "new/there"):
        store.put("data", key, key.encode())
    with pytest.raises(Conflict):
        store.rename_prefix("data", "old/", "new/")
    for target in ("old/inside/", "o"):
        with pytest.raises(InvalidInput):
            store.rename_prefix("data", "old/", target)
    with pytest.raises(InvalidInput):
        store.rename_prefix("data", "old/", "n" * 1020 + "/")
    assert store.rename_prefix("data", "old/", "moved/") == 3
    assert [one.key for one in store.list("data").objects] == [
        "moved/",
        "moved/1",
        "moved/deep/2",
        "new/there",
        "older",
    ]
    assert read(store, "moved/deep/2") == b"old/deep/2"
    assert store.rename_prefix("data", "nothing/", "somewhere/") == 0


def test_pieces_tell_the_parts(store: ObjectStore) -> None:
    store.put("data", "whole", b"12345")
    assert store.piece_sizes("data", "whole") == [5]
    upload = store.create_upload("data", "k")
    sizes = [5 << 20, 2]
    parts = [store.put_part("data", "k", upload.upload_id, n, b"x" * sizes[n - 1]) for n in (1, 2)]
    store.complete_upload("data", "k", upload.upload_id, [(part.number, part.etag) for part in parts])
    assert store.piece_sizes("data", "k") == sizes
