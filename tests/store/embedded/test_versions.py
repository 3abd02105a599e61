"""Versions: what is kept, what hides it, what brings it back."""

from __future__ import annotations

import pytest

from trainshed.model.errors import Conflict, InvalidInput, NotFound
from trainshed.store.embedded.store import EmbeddedStore


@pytest.fixture
def versioned(store: EmbeddedStore) -> EmbeddedStore:
    store.put("data", "k", b"null one")
    store.set_versioning("data", "Enabled")
    return store


def read(store: EmbeddedStore, key: str, version_id: str = "") -> bytes:
    _, file = store.open_object("data", key, version_id)
    with file:
        return file.read()


def history(store: EmbeddedStore, **query: str) -> list[tuple[str, int, bool, bool]]:
    page = store.list_versions("data", **query)  # type: ignore[arg-type]
    return [(one.info.key, one.info.size, one.is_latest, one.is_delete_marker) for one in page.versions]


def blobs(store: EmbeddedStore) -> int:
    return len([path for path in (store.folder / "blobs").rglob("*") if path.is_file()])


def test_overwritten_and_removed_objects_stay_as_versions(versioned: EmbeddedStore) -> None:
    store = versioned
    assert store.bucket("data").versioning == "Enabled"
    second = store.put("data", "k", b"second!")
    assert second.version_id and read(store, "k") == b"second!"
    assert read(store, "k", "null") == b"null one"
    assert read(store, "k", second.version_id) == b"second!"

    removal = store.remove("data", "k")
    assert removal.existed and removal.is_delete_marker and removal.version_id
    with pytest.raises(NotFound) as caught:
        store.info("data", "k")
    assert caught.value.code == "no_such_key"
    with pytest.raises(NotFound) as caught:
        store.info("data", "k", removal.version_id)
    assert caught.value.code == "is_delete_marker"
    with pytest.raises(NotFound) as caught:
        store.info("data", "k", "nonsense")
    assert caught.value.code == "no_such_version"
    assert store.list("data").objects == ()
    assert history(store) == [("k", 0, True, True), ("k", 7, False, False), ("k", 8, False, False)]
    with pytest.raises(Conflict):
        store.delete_bucket("data")

    # Without the marker the newest version is back, and so on, down to the first.
    assert store.remove("data", "k", removal.version_id).is_delete_marker
    assert read(store, "k") == b"second!"
    assert store.remove("data", "k", second.version_id).existed
    assert read(store, "k") == b"null one" and blobs(store) == 1
    assert store.remove("data", "k", "null").existed
    assert history(store) == [] and blobs(store) == 0
    assert not store.remove("data", "k", "null").existed


def test_suspended_buckets_keep_only_named_versions(versioned: EmbeddedStore) -> None:
    store = versioned
    named = store.put("data", "k", b"named")
    store.set_versioning("data", "Suspended")
    for body in (b"null 2", b"null three"):
        assert store.put("data", "k", body).version_id == ""
    assert history(store) == [("k", 10, True, False), ("k", 5, False, False)]
    assert read(store, "k", "null") == b"null three" and read(store, "k", named.version_id) == b"named"
    removal = store.remove("data", "k")
    assert (removal.version_id, removal.is_delete_marker) == ("null", True)
    assert history(store) == [("k", 0, True, True), ("k", 5, False, False)] and blobs(store) == 1
    store.put("data", "k", b"back")
    assert history(store) == [("k", 4, True, False), ("k", 5, False, False)]


def test_copies_and_prefixes_know_versions(versioned: EmbeddedStore) -> None:
    store = versioned
    store.put("data", "k", b"second!")
    store.copy("data", "k", "data", "k", version_id="null")
    assert read(store, "k") == b"null one" and len(history(store)) == 3
    assert store.copy_prefix("data", "k", "data", "k") == 1
    assert len(history(store)) == 4
    assert store.delete_prefix("data", "") == 1
    assert history(store)[0] == ("k", 0, True, True)
    assert store.verify().is_whole and store.verify().objects == 4
    store.put("data", "f/1", b"1")
    assert store.rename_prefix("data", "f/", "g/") == 1
    assert [one.key for one in store.list("data").objects] == ["g/1"]


def test_versions_are_listed_page_by_page(versioned: EmbeddedStore) -> None:
    store = versioned
    for key in ("a", "f/1", "f/2", "k", "z"):
        for turn in range(3):
            store.put("data", key, b"x" * turn)
    store.remove("data", "f/2")
    everything = [(one.info.key, one.info.version_id) for one in store.list_versions("data").versions]
    assert len(everything) == 17 and [key for key, _ in everything] == sorted(key for key, _ in everything)
    for limit in (1, 2, 5):
        seen, key, version = [], "", ""
        while True:
            page = store.list_versions("data", after_key=key, after_version=version, limit=limit)
            seen += [(one.info.key, one.info.version_id) for one in page.versions]
            key, version = page.next_after_key, page.next_after_version
            if not key:
                break
        assert seen == everything
    page = store.list_versions("data", delimiter="/", limit=4)
    assert [one.info.key for one in page.versions] == ["a"] * 3 and page.folders == ("f/",)
    page = store.list_versions("data", delimiter="/", after_key=page.next_after_key)
    assert {one.info.key for one in page.versions} == {"k", "z"} and page.folders == ()
    assert [one.info.key for one in store.list_versions("data", after_key="k").versions] == ["z"] * 3
    assert sum(one.is_latest for one in store.list_versions("data", "f/").versions) == 2


def test_what_cannot_be(versioned: EmbeddedStore) -> None:
    with pytest.raises(InvalidInput):
        versioned.set_versioning("data", "sometimes")
    with pytest.raises(Conflict) as caught:
        versioned.append("data", "log", 0)
    assert caught.value.code == "versioned_bucket"
    with pytest.raises(NotFound):
        versioned.set_versioning("nowhere", "Enabled")
