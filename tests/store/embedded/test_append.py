"""Objects that grow: positions, copies, readers in between, and death in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from trainshed.store.embedded import append as append_module
from trainshed.store.embedded.store import EmbeddedStore
from trainshed.store.object_store import ObjectInfo


def append(store: EmbeddedStore, position: int, data: bytes, key: str = "log") -> ObjectInfo:
    with store.append("data", key, position) as upload:
        upload.write(data)
        return upload.commit()


def read(store: EmbeddedStore, key: str = "log") -> bytes:
    with store.open("data", key) as file:
        return file.read()


def blobs(store: EmbeddedStore) -> list[Path]:
    return [path for path in (store.folder / "blobs").rglob("*") if path.is_file()]


def test_an_object_grows_in_its_own_file(store: EmbeddedStore) -> None:
    first = append(store, 0, b"one ")
    assert first.is_appendable and first.size == 4
    inode = blobs(store)[0].stat().st_ino
    second = append(store, 4, b"two ")
    third = append(store, 8, b"three")
    assert third.size == 13 and read(store) == b"one two three"
    assert len({first.etag, second.etag, third.etag}) == 3 and third.etag.endswith("-3")
    (blob,) = blobs(store)
    assert blob.stat().st_ino == inode and blob.stat().st_nlink == 1
    assert store.piece_sizes("data", "log") == [4, 4, 5]
    assert append(store, 13, b"") == third
    report = store.verify()
    assert report.is_whole and report.orphans == ()


def test_those_who_share_the_bytes_see_nothing_of_what_follows(store: EmbeddedStore, tmp_path: Path) -> None:
    append(store, 0, b"one")
    store.copy("data", "log", "data", "copy")
    _, opened = store.open_object("data", "log")
    append(store, 3, b"two")
    with opened:
        assert opened.read() == b"one"
    assert read(store, "copy") == b"one" and not store.info("data", "copy").is_appendable
    assert len(blobs(store)) == 2
    _, opened = store.open_object("data", "log")
    # A staged folder links the file.
    (blob,) = [path for path in blobs(store) if path.stat().st_size == 6]
    os.link(blob, tmp_path / "staged")
    append(store, 6, b"three")
    with opened:
        assert opened.read() == b"onetwo"
    assert (tmp_path / "staged").read_bytes() == b"onetwo" and read(store) == b"onetwothree"
    renamed = store.rename("data", "log", "moved")
    assert renamed.is_appendable and append(store, 11, b"!", "moved").size == 12
    assert store.verify().is_whole


def test_a_long_list_of_pieces_is_folded(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_module, "_MAX_PIECES", 3)
    for position in range(8):
        append(store, position, b"%d" % position)
    assert read(store) == b"01234567" and len(store.piece_sizes("data", "log")) <= 4
    assert store.verify().is_whole


@pytest.mark.parametrize("moment", ["written", "committed"])
def test_killed_in_the_middle(store: EmbeddedStore, moment: str) -> None:
    append(store, 0, b"before")
    code = """
        import os, sys
        from pathlib import Path
        from trainshed.store.embedded import blob_file, store

        if sys.argv[2] == "written":
            blob_file.BlobFile.publish = lambda self, publish=blob_file.BlobFile.publish: (
                publish(self) if hasattr(self, "md5") else os._exit(9)
            )
        else:
            blob_file.BlobFile.settle = lambda self: os._exit(9)
        upload = store.EmbeddedStore(Path(sys.argv[1])).append("data", "log", 6)
        upload.write(b" and more")
        upload.commit()
    """
    died = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(store.folder), moment], timeout=120, check=False
    )
    assert died.returncode == 9
    store.collect_garbage()
    expected = b"before" if moment == "written" else b"before and more"
    assert read(store) == expected
    assert store.verify().is_whole and len(blobs(store)) == 1
    append(store, len(expected), b"!")
    assert read(store) == expected + b"!"
    assert store.verify().is_whole and store.verify().orphans == () and len(blobs(store)) == 1
