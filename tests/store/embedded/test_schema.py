"""A store that an earlier version of the platform made opens as it is, and goes on."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from trainshed.model.errors import HostUnfit, TrainshedError
from trainshed.store.embedded import schema
from trainshed.store.embedded.store import EmbeddedStore


@pytest.fixture
def old_store(tmp_path: Path) -> Path:
    """Made by the first version: two buckets, a folder, a copy, an object of the platform's own."""
    with tarfile.open(Path(__file__).with_name("store_version_1.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "store"


def version(folder: Path) -> int:
    connection = sqlite3.connect(folder / "index.sqlite")
    try:
        found: int = connection.execute("PRAGMA user_version").fetchone()[0]
        return found
    finally:
        connection.close()


def test_everything_is_there_after_the_upgrade(old_store: Path) -> None:
    assert version(old_store) == 1
    store = EmbeddedStore(old_store)
    assert version(old_store) == schema.SCHEMA_VERSION
    assert [bucket.name for bucket in store.buckets()] == ["data", "empty"]
    assert [info.key for info in store.walk("data")] == ["a", "copy", "folder/", "folder/é", "shared"]
    info = store.info("data", "folder/é")
    assert (info.content_type, info.metadata) == ("text/plain", {"m": "ü"})
    assert (info.attributes, info.version_id, info.is_appendable) == ({}, "", False)
    for key, body in {"a": b"newer", "folder/é": b"second", "copy": b"shared bytes"}.items():
        with store.open("data", key) as file:
            assert file.read() == body
    report = store.verify()
    assert report.is_whole and report.orphans == ()
    with store._transactions.read() as connection:
        usage = connection.execute("SELECT sum(objects), sum(bytes) FROM usage").fetchone()
    assert usage == (6, 5 + 12 + 0 + 6 + 12 + 8)

    # What is new works on what is old.
    store.set_versioning("data", "Enabled")
    store.put("data", "a", b"newest")
    with store.open_object("data", "a", "null")[1] as file:
        assert file.read() == b"newer"
    store.delete("data", "shared")
    assert store.info("data", "copy").size == 12
    store.close()
    EmbeddedStore(old_store).close()


def test_a_step_that_fails_changes_nothing(old_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (*schema._STEPS[:-1], schema._STEPS[-1] + "CREATE TABLE objects (twice);")
    with monkeypatch.context() as patch:
        patch.setattr(schema, "_STEPS", steps)
        with pytest.raises(TrainshedError):
            EmbeddedStore(old_store)
    assert version(old_store) == 1
    store = EmbeddedStore(old_store)
    assert store.info("data", "a").size == 5
    store.close()


def test_many_may_open_an_old_store_at_once(old_store: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from trainshed.store.embedded.store import EmbeddedStore;"
        "store = EmbeddedStore(Path(sys.argv[1])); store.put('data', sys.argv[2], b'x'); store.close()"
    )
    openers = [subprocess.Popen([sys.executable, "-c", code, str(old_store), name]) for name in "xyz"]
    assert [opener.wait(timeout=120) for opener in openers] == [0, 0, 0]
    store = EmbeddedStore(old_store)
    assert len(list(store.walk("data"))) == 8 and store.verify().is_whole
    store.close()


def test_a_newer_store_is_left_alone(old_store: Path) -> None:
    connection = sqlite3.connect(old_store / "index.sqlite")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(HostUnfit) as caught:
        EmbeddedStore(old_store)
    assert caught.value.code == "store_too_new"
