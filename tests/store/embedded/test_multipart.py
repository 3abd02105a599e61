"""Objects that arrive in parts: order, replacement, paging, copies, and death in the middle."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from trainshed.model.errors import InvalidInput, NotFound
from trainshed.store.embedded import core
from trainshed.store.embedded.store import EmbeddedStore
from trainshed.store.object_store import Part


def read(store: EmbeddedStore, key: str) -> bytes:
    with store.open("data", key) as file:
        return file.read()


def files(store: EmbeddedStore, folder: str) -> list[Path]:
    return [path for path in (store.folder / folder).rglob("*") if path.is_file()]


def combined(*bodies: bytes) -> str:
    digests = b"".join(hashlib.md5(body).digest() for body in bodies)
    return f"{hashlib.md5(digests).hexdigest()}-{len(bodies)}"


def names(parts: list[Part]) -> list[tuple[int, str]]:
    return [(part.number, part.etag) for part in sorted(parts, key=lambda part: part.number)]


BODIES = [b"a" * 1000, b"b" * 1000, b"c" * 300]


@pytest.mark.parametrize("order", [[1, 2, 3], [2, 1, 3]])
def test_parts_of_one_size_become_an_object_without_being_moved(
    store: EmbeddedStore, order: list[int]
) -> None:
    upload = store.create_upload("data", "k", content_type="text/plain", metadata={"a": "1"})
    parts = [store.put_part("data", "k", upload.upload_id, n, BODIES[n - 1]) for n in order]
    (file,) = files(store, "uploads")
    inode = file.stat().st_ino
    assert files(store, "blobs") == []
    with pytest.raises(NotFound):
        store.info("data", "k")

    info = store.complete_upload("data", "k", upload.upload_id, names(parts))

    assert info.etag == combined(*BODIES) and info.size == 2300
    assert (info.content_type, info.metadata) == ("text/plain", {"a": "1"})
    assert read(store, "k") == b"".join(BODIES)
    (blob,) = files(store, "blobs")
    assert blob.stat().st_ino == inode and blob.stat().st_nlink == 1 and blob.stat().st_mode & 0o777 == 0o400
    assert files(store, "uploads") == [] and store.list_uploads("data").uploads == ()
    report = store.verify()
    assert report.is_whole and report.objects == 1 and report.orphans == ()


def test_a_part_may_not_run_into_the_next_one(store: EmbeddedStore) -> None:
    upload = store.create_upload("data", "k")
    with pytest.raises(InvalidInput), store.upload_part("data", "k", upload.upload_id, 1, size=3) as part:
        part.write(b"four")
    with store.upload_part("data", "k", upload.upload_id, 1, size=3) as part:
        part.write(b"abc")
        done = part.commit(expected_md5=hashlib.md5(b"abc").hexdigest(), attributes={"crc32": "x"})
    assert done.attributes == {"crc32": "x"}
    # The slot was given back: nothing had to be moved.
    store.complete_upload("data", "k", upload.upload_id, names([done]))
    assert read(store, "k") == b"abc"
    for number in (0, 10001):
        with pytest.raises(InvalidInput):
            store.put_part("data", "k", upload.upload_id, number, b"x")


def test_abandoned_uploads_are_collected(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    old = store.create_upload("data", "old")
    store.put_part("data", "old", old.upload_id, 1, b"a")
    store.put_part("data", "old", old.upload_id, 1, b"b")
    store.collect_garbage()
    assert len(store.list_uploads("data").uploads) == 1
    monkeypatch.setattr(core, "_ABANDONED_SECONDS", -1.0)
    store.collect_garbage()
    assert store.list_uploads("data").uploads == ()
    assert files(store, "uploads") == files(store, "blobs") == []


DIE = """
    import os, sys
    from pathlib import Path
    from trainshed.store.embedded import blob_file, multipart, part_files
    from trainshed.store.embedded.store import EmbeddedStore

    store = EmbeddedStore(Path(sys.argv[1]))
    upload = store.create_upload("data", "k")
    parts = [(n, store.put_part("data", "k", upload.upload_id, n, b"%d" % n * 100).etag) for n in (1, 2)]
    if sys.argv[2] == "part":
        part = store.upload_part("data", "k", upload.upload_id, 3, size=100)
        part.write(b"half")
        os._exit(9)
    if sys.argv[2] == "linked":
        store._write = lambda *arguments, write=store._write: os._exit(9) if len(arguments) > 1 else write(*arguments)
    if sys.argv[2] == "committed":
        blob_file.BlobFile.settle = lambda self: os._exit(9)
    store.complete_upload("data", "k", upload.upload_id, parts)
"""


@pytest.mark.parametrize("moment", ["part", "linked", "committed"])
def test_killed_in_the_middle(store: EmbeddedStore, moment: str) -> None:
    store.put("data", "k", b"before")
    died = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DIE), str(store.folder), moment], timeout=120, check=False
    )
    assert died.returncode == 9
    store.collect_garbage()
    if moment == "committed":
        assert read(store, "k") == b"1" * 100 + b"2" * 100
    else:
        assert read(store, "k") == b"before"
        # What was acknowledged is still there, and the upload can go on.
        (upload,) = store.list_uploads("data").uploads
        parts = list(store.list_parts("data", "k", upload.upload_id).parts)
        assert [part.number for part in parts] == [1, 2]
        parts.append(store.put_part("data", "k", upload.upload_id, 3, b"3" * 100))
        store.complete_upload("data", "k", upload.upload_id, names(parts))
        assert read(store, "k") == b"1" * 100 + b"2" * 100 + b"3" * 100
    store.collect_garbage()
    assert len(files(store, "blobs")) == 1 and files(store, "uploads") == []
    assert store.verify().is_whole and store.verify().orphans == ()
