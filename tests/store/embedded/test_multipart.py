"""Objects that arrive in parts: order, replacement, paging, copies, and death in the middle."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from trainshed.model.errors import Conflict, InvalidInput, NotFound, TrainshedError
from trainshed.store.embedded import core
from trainshed.store.embedded.store import EmbeddedStore
from trainshed.store.object_store import Condition, Part


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


def test_completing_twice_gives_the_same_object(store: EmbeddedStore) -> None:
    upload = store.create_upload("data", "k")
    part = store.put_part("data", "k", upload.upload_id, 1, b"x")
    first = store.complete_upload("data", "k", upload.upload_id, names([part]))
    assert store.complete_upload("data", "k", upload.upload_id, names([part])) == first
    store.put("data", "k", b"another object")
    with pytest.raises(NotFound) as caught:
        store.complete_upload("data", "k", upload.upload_id, names([part]))
    assert caught.value.code == "no_such_upload"


@pytest.mark.parametrize(
    "sent",
    [
        [(1, b"a" * 10), (2, b"b" * 20), (3, b"c" * 30)],
        [(1, b"a" * 10), (2, b"b" * 10), (1, b"A" * 10), (3, b"c")],
        [(2, b"b" * 10), (5, b"e" * 10), (9999, b"z")],
        [(3, b"short"), (1, b"a" * 10), (2, b"b" * 10)],
        [(1, b""), (2, b"b")],
        [(1, b"")],
    ],
    ids=["growing", "replaced", "gaps", "last first", "empty first", "empty"],
)
def test_any_parts_in_any_order_make_the_object(store: EmbeddedStore, sent: list[tuple[int, bytes]]) -> None:
    upload = store.create_upload("data", "k")
    latest: dict[int, tuple[bytes, Part]] = {}
    for number, body in sent:
        latest[number] = (body, store.put_part("data", "k", upload.upload_id, number, body))
    bodies = [latest[number][0] for number in sorted(latest)]
    info = store.complete_upload("data", "k", upload.upload_id, names([part for _, part in latest.values()]))
    assert read(store, "k") == b"".join(bodies)
    assert info.etag == combined(*bodies)
    assert len(files(store, "blobs")) == (1 if info.size else 0) and files(store, "uploads") == []
    assert store.verify().is_whole


def test_parts_that_are_not_named_are_left_out(store: EmbeddedStore) -> None:
    upload = store.create_upload("data", "k")
    parts = [store.put_part("data", "k", upload.upload_id, n, BODIES[n - 1]) for n in (1, 2, 3)]
    with pytest.raises(NotFound):
        store.complete_upload(
            "data", "k", upload.upload_id, names(parts[:2]), condition=Condition(if_match='"x"')
        )
    # The refusal took nothing away.
    store.complete_upload("data", "k", upload.upload_id, names([parts[0], parts[2]]))
    assert read(store, "k") == BODIES[0] + BODIES[2]


def test_a_refused_completion_can_be_made_again(store: EmbeddedStore) -> None:
    store.put("data", "k", b"there")
    upload = store.create_upload("data", "k")
    parts = [store.put_part("data", "k", upload.upload_id, n, BODIES[n - 1]) for n in (1, 2, 3)]
    with pytest.raises(Conflict) as caught:
        store.complete_upload(
            "data", "k", upload.upload_id, names(parts), condition=Condition(if_none_match="*")
        )
    assert caught.value.code == "precondition_failed" and read(store, "k") == b"there"
    store.complete_upload("data", "k", upload.upload_id, names(parts))
    assert read(store, "k") == b"".join(BODIES) and len(files(store, "blobs")) == 1


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ([], "invalid_part_order"),
        ([(2, "b"), (1, "a")], "invalid_part_order"),
        ([(1, "a"), (1, "a")], "invalid_part_order"),
        ([(1, "a"), (2, "wrong")], "invalid_part"),
        ([(1, "a"), (3, "c")], "invalid_part"),
    ],
)
def test_wrong_completions_are_refused(
    store: EmbeddedStore, wanted: list[tuple[int, str]], code: str
) -> None:
    upload = store.create_upload("data", "k")
    etags = {
        name: store.put_part("data", "k", upload.upload_id, n, name.encode()).etag
        for n, name in ((1, "a"), (2, "b"))
    }
    with pytest.raises(InvalidInput) as caught:
        store.complete_upload("data", "k", upload.upload_id, [(n, etags.get(e, "0" * 32)) for n, e in wanted])
    assert caught.value.code == code
    assert len(store.list_parts("data", "k", upload.upload_id).parts) == 2


def test_small_parts_are_refused_when_asked(store: EmbeddedStore) -> None:
    upload = store.create_upload("data", "k")
    parts = [store.put_part("data", "k", upload.upload_id, n, BODIES[n - 1]) for n in (1, 2, 3)]
    with pytest.raises(InvalidInput) as caught:
        store.complete_upload("data", "k", upload.upload_id, names(parts), min_part_size=1001)
    assert caught.value.code == "entity_too_small"
    assert store.complete_upload("data", "k", upload.upload_id, names(parts), min_part_size=1000).size == 2300


def test_aborting_leaves_nothing(store: EmbeddedStore) -> None:
    upload = store.create_upload("data", "k")
    store.put_part("data", "k", upload.upload_id, 1, b"a" * 10)
    store.put_part("data", "k", upload.upload_id, 1, b"A" * 10)
    late = store.upload_part("data", "k", upload.upload_id, 2, size=10)
    store.abort_upload("data", "k", upload.upload_id)
    assert files(store, "uploads") == files(store, "blobs") == []
    with pytest.raises(NotFound), late:
        late.write(b"b" * 10)
        late.commit()
    for action in (store.abort_upload, store.list_parts, store.find_upload):
        with pytest.raises(NotFound) as caught:
            action("data", "k", upload.upload_id)
        assert caught.value.code == "no_such_upload"


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


def test_a_wrong_checksum_keeps_the_part_before(store: EmbeddedStore) -> None:
    upload = store.create_upload("data", "k")
    first = store.put_part("data", "k", upload.upload_id, 1, b"good")
    with pytest.raises(InvalidInput):
        store.put_part("data", "k", upload.upload_id, 1, b"evil", expected_md5="0" * 32)
    store.complete_upload("data", "k", upload.upload_id, names([first]))
    assert read(store, "k") == b"good"


def test_parts_can_be_copied_from_objects(store: EmbeddedStore) -> None:
    store.put("data", "source", b"0123456789")
    upload = store.create_upload("data", "k")
    parts = [
        store.copy_part("data", "k", upload.upload_id, 1, "data", "source", start=2, length=5),
        store.copy_part("data", "k", upload.upload_id, 2, "data", "source"),
        store.put_part("data", "k", upload.upload_id, 3, io.BytesIO(b"streamed")),
    ]
    for start, length in ((8, 3), (11, 0)):
        with pytest.raises(InvalidInput) as caught:
            store.copy_part("data", "k", upload.upload_id, 4, "data", "source", start=start, length=length)
        assert caught.value.code == "invalid_range"
    store.complete_upload("data", "k", upload.upload_id, names(parts))
    assert read(store, "k") == b"234560123456789streamed"


def test_listing_parts_and_uploads_page_by_page(store: EmbeddedStore) -> None:
    uploads = {}
    for key in ("a", "b/1", "b/2", "b/2", "c", "é/x"):
        upload = store.create_upload("data", key)
        uploads.setdefault(key, []).append(upload.upload_id)
        time.sleep(0.001)
    for limit in (1, 2, 4, 1000):
        seen = []
        key = upload_id = ""
        while True:
            page = store.list_uploads("data", after_key=key, after_upload=upload_id, limit=limit)
            seen += [(one.key, one.upload_id) for one in page.uploads]
            key, upload_id = page.next_after_key, page.next_after_upload
            if not key:
                break
        assert seen == [(key, name) for key in sorted(uploads) for name in uploads[key]]
    page = store.list_uploads("data", delimiter="/", limit=2)
    assert [one.key for one in page.uploads] == ["a"] and page.folders == ("b/",)
    page = store.list_uploads(
        "data", delimiter="/", after_key=page.next_after_key, after_upload=page.next_after_upload
    )
    assert [one.key for one in page.uploads] == ["c"] and page.folders == ("é/",)
    assert [one.key for one in store.list_uploads("data", "b/").uploads] == ["b/1", "b/2", "b/2"]
    assert store.list_uploads("data", after_key="b/1").uploads[0].key == "b/2"

    (upload_id,) = uploads["a"]
    for number in (3, 1, 2):
        store.put_part("data", "a", upload_id, number, b"x" * number)
    first = store.list_parts("data", "a", upload_id, limit=2)
    assert [part.number for part in first.parts] == [1, 2] and first.next_after == 2
    rest = store.list_parts("data", "a", upload_id, after=2, limit=2)
    assert [part.size for part in rest.parts] == [3] and rest.next_after == 0


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


def test_a_bucket_takes_its_unfinished_uploads_along(store: EmbeddedStore) -> None:
    store.create_bucket("other", "w1")
    upload = store.create_upload("other", "k")
    store.put_part("other", "k", upload.upload_id, 1, b"a")
    store.delete_bucket("other")
    assert files(store, "uploads") == files(store, "blobs") == []


def test_two_complete_and_one_aborts_at_once(store: EmbeddedStore) -> None:
    for turn in range(10):
        upload = store.create_upload("data", "k")
        parts = [store.put_part("data", "k", upload.upload_id, n, BODIES[n - 1]) for n in (1, 2, 3)]
        ends: list[str] = []

        def complete(upload_id: str, wanted: list[tuple[int, str]], ends: list[str]) -> None:
            try:
                ends.append(store.complete_upload("data", "k", upload_id, wanted).etag)
            except TrainshedError as error:
                ends.append(error.code)

        def abort(upload_id: str) -> None:
            try:
                store.abort_upload("data", "k", upload_id)
            except NotFound:
                pass

        threads = [
            threading.Thread(target=complete, args=(upload.upload_id, names(parts), ends)) for _ in "ab"
        ]
        if turn % 2:
            threads.append(threading.Thread(target=abort, args=(upload.upload_id,)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert set(ends) <= {combined(*BODIES), "no_such_upload"}
        if not turn % 2:
            assert ends == [combined(*BODIES)] * 2
            assert read(store, "k") == b"".join(BODIES)
        assert files(store, "uploads") == []
    assert store.verify().is_whole and store.verify().orphans == ()


DIE = """
    import os, sys
    from pathlib import Path
    from trainshed.store.embedded import blobs, multipart, part_files
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
        blobs.BlobFile.settle = lambda self: os._exit(9)
    store.complete_upload("data", "k", upload.upload_id, parts)
"""


@pytest.mark.parametrize("moment", ["part", "linked", "committed"])
def test_killed_in_the_middle(store: EmbeddedStore, moment: str) -> None:
    store.put("data", "k", b"before")
    died = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DIE), str(store.folder), moment], timeout=30, check=False
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
