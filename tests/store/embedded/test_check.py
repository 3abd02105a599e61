"""The check of the embedded store."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.model.errors import Unavailable
from trainshed.store.embedded.check import CheckReport
from trainshed.store.embedded.store import EmbeddedStore


def blob_of(store: EmbeddedStore, data: bytes) -> Path:
    [path] = [p for p in (store.folder / "blobs").rglob("*") if p.is_file() and p.read_bytes() == data]
    return path


def test_a_whole_store_is_found_whole(store: EmbeddedStore) -> None:
    for number in range(1200):
        store.put("data", f"k{number}", b"x") if number < 30 else store.copy(
            "data", "k1", "data", f"k{number}"
        )
    store.put_folder("data", "folder")
    with store.upload("data", "under-way") as upload:
        upload.write(b"not yet")
        upload._blob.publish()
        report = store.verify()
    assert report == CheckReport(objects=1200, bytes=30) and report.is_whole


def test_damage_is_found_and_set_aside(store: EmbeddedStore) -> None:
    for name in ("good", "changed", "shorter", "gone"):
        store.put("data", name, f"bytes of {name}".encode())
    store.copy("data", "changed", "data", "copy")
    changed, shorter, gone = (
        blob_of(store, f"bytes of {name}".encode()) for name in ("changed", "shorter", "gone")
    )
    for path, data in ((changed, b"bytes of CHANGED"), (shorter, b"bytes")):
        path.chmod(0o600)
        path.write_bytes(data)
    gone.unlink()
    stray = changed.parent.name + "stray"
    (changed.parent / stray).write_bytes(b"x")
    for _ in range(2):
        report = store.verify()
        assert set(report.damaged) == {"obs://data/changed", "obs://data/copy", "obs://data/shorter"}
        assert report.missing == ("obs://data/gone",) and report.orphans == (stray,) and not report.is_whole
    store.verify(quarantine=True)
    assert len(list((store.folder / "quarantine").iterdir())) == 3
    for name in ("changed", "copy", "shorter", "gone"):
        with pytest.raises(Unavailable, match="missing from the disk"), store.open("data", name):
            pass
    with store.open("data", "good") as file:
        assert file.read() == b"bytes of good"
    store.put("data", "changed", b"again")
    assert "obs://data/changed" not in store.verify().missing
