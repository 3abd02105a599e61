"""Copies are compared with what was stored, and what fails for a passing reason is tried again."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainshed.model.errors import InvalidInput, TrainshedError, Unavailable
from trainshed.store import patience, transfer
from trainshed.store.embedded.store import EmbeddedStore
from trainshed.store.object_store import ObjectStore
from trainshed.store.transfer import download_tree, upload_tree
from trainshed.store.verification import has_bytes_of

MIB = 1 << 20


def damage(store: EmbeddedStore, key: str, at: int) -> None:
    """Change a byte of an object's blob, as a failing disk would."""
    with store.open_object("data", key)[1] as source:
        blob = Path(f"/proc/self/fd/{source.fileno()}").resolve()
    mode = blob.stat().st_mode
    blob.chmod(0o600)
    with blob.open("r+b") as file:
        file.seek(at)
        file.write(b"!")
    blob.chmod(mode)


def put_in_parts(store: ObjectStore, key: str, *pieces: bytes) -> None:
    upload = store.create_upload("data", key)
    parts = []
    for number, piece in enumerate(pieces, 1):
        part = store.upload_part("data", key, upload.upload_id, number, size=len(piece))
        part.write(piece)
        parts.append((number, part.commit().etag))
    store.complete_upload("data", key, upload.upload_id, parts)


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_FIRST_WAIT", 0.001)


@pytest.fixture
def embedded(tmp_path: Path) -> Any:
    store = EmbeddedStore(tmp_path / "store")
    store.create_bucket("data", "w1")
    yield store
    store.close()


@pytest.mark.parametrize("key", ["whole", "parted", "large"])
def test_rot_never_reaches_a_target(
    embedded: EmbeddedStore, tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_LARGE", MIB)
    if key == "parted":
        put_in_parts(embedded, key, b"a" * 300_000, b"b" * 300_000, b"c" * 5)
    else:
        embedded.put("data", key, b"x" * (500_000 if key == "whole" else 3 * MIB))
    damage(embedded, key, 450_000)
    told: list[int] = []
    with pytest.raises(Unavailable) as caught:
        download_tree(
            embedded, "data", key, tmp_path / "t", on_progress=lambda files, size: told.append(size)
        )
    assert caught.value.code == "checksum_mismatch" and "obs verify" in caught.value.hint
    assert os.listdir(tmp_path / "t") == [] and (not told or told[-1] == 0)
    # Whoever only wants the size gets it.
    assert download_tree(embedded, "data", key, tmp_path / "t", verify=False).files == 1


def test_only_what_differs_is_fetched(store: ObjectStore, tmp_path: Path) -> None:
    put_in_parts(store, "in/parted", b"a" * (5 * MIB), b"b" * 1000)
    store.put("data", "in/same", b"same")
    store.put("data", "in/other", b"new")
    store.put("data", "in/tool", b"tool", metadata={"mode": "755"})
    target = tmp_path / "t"
    assert download_tree(store, "data", "in/", target).files == 4
    (target / "other").write_bytes(b"old")
    (target / "same").unlink()
    (target / "same").symlink_to("other")
    again = download_tree(store, "data", "in/", target, only_changed=True)
    assert (again.files, again.unchanged) == (2, 2)
    assert (target / "other").read_bytes() == b"new"
    assert not (target / "same").is_symlink() and (target / "same").read_bytes() == b"same"
    assert stat.S_IMODE((target / "tool").stat().st_mode) == 0o755
    # And the other way round: an object in parts is recognised, too.
    sent = upload_tree(store, target, "data", "in/", only_changed=True)
    assert (sent.files, sent.unchanged) == (0, 4)


class Shaky:
    """A store that fails for a while."""

    def __init__(self, store: ObjectStore, name: str, faults: list[TrainshedError]) -> None:
        self._store, self._name, self._faults = store, name, faults
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if name != self._name:
            return real

        def shaky(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                fault = self._faults.pop() if self._faults else None
            if fault is not None:
                raise fault
            return real(*arguments, **options)

        return shaky


@pytest.mark.parametrize(
    ("name", "move"),
    [
        ("put", lambda store, folder: upload_tree(store, folder, "data", "up/")),
        ("put_folder", lambda store, folder: upload_tree(store, folder, "data", "up/")),
        ("fetch_to_file", lambda store, folder: download_tree(store, "data", "down/", folder)),
        ("info", lambda store, folder: download_tree(store, "data", "down/a", folder)),
    ],
)
def test_what_may_pass_is_tried_again(
    embedded: EmbeddedStore, tmp_path: Path, name: str, move: Callable[[Any, Path], Any]
) -> None:
    embedded.put("data", "down/a", b"a")
    folder = tmp_path / "folder"
    (folder / "empty").mkdir(parents=True)
    (folder / "file").write_bytes(b"x")
    busy = [Unavailable("busy", code="store_busy"), Unavailable("gone", code="store_unreachable")]
    assert move(Shaky(embedded, name, busy), folder).files == 1 and busy == []
    with pytest.raises(Unavailable):
        move(Shaky(embedded, name, [Unavailable("busy", code="store_busy") for _ in range(50)]), folder)
    final: list[TrainshedError] = [InvalidInput("no"), InvalidInput("not again")]
    with pytest.raises(InvalidInput):
        move(Shaky(embedded, name, final), folder)
    assert len(final) == 1


def test_a_watcher_ends_the_comparison(embedded: EmbeddedStore, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop() -> None:
        raise Stop

    path = tmp_path / "f"
    with path.open("wb") as file:
        file.truncate(65 * MIB)
    embedded.put("data", "zeros", [bytes(MIB)] * 65)
    with path.open("rb") as file:
        assert has_bytes_of(embedded, embedded.info("data", "zeros"), file.fileno())
        with pytest.raises(Stop):
            has_bytes_of(embedded, embedded.info("data", "zeros"), file.fileno(), stop)
