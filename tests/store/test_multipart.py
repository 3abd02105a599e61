"""Objects that arrive in parts: order, replacement, paging, copies."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import time
from collections.abc import Callable

import pytest

from trainshed.model.errors import Conflict, InvalidInput, NotFound, TrainshedError
from trainshed.store.external.store import ExternalStore
from trainshed.store.object_store import Condition, ObjectStore, Part

Check = Callable[[ObjectStore], None]
# The endpoint takes no smaller part, but for the last.
LEAST = 5 << 20


@pytest.fixture
def bodies(store: ObjectStore) -> list[bytes]:
    """Three parts of an object."""
    size = LEAST if isinstance(store, ExternalStore) else 1000
    return [b"a" * size, b"b" * size, b"c" * 300]


def read(store: ObjectStore, key: str) -> bytes:
    with store.open("data", key) as file:
        return file.read()


def combined(*bodies: bytes) -> str:
    digests = b"".join(hashlib.md5(body).digest() for body in bodies)
    return f"{hashlib.md5(digests).hexdigest()}-{len(bodies)}"


def names(parts: list[Part]) -> list[tuple[int, str]]:
    return [(part.number, part.etag) for part in sorted(parts, key=lambda part: part.number)]


def test_completing_twice_gives_the_same_object(store: ObjectStore) -> None:
    upload = store.create_upload("data", "k")
    part = store.put_part("data", "k", upload.upload_id, 1, b"x")
    first = store.complete_upload("data", "k", upload.upload_id, names([part]))
    again = store.complete_upload("data", "k", upload.upload_id, names([part]))
    assert (again.etag, again.size) == (first.etag, 1)
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
def test_any_parts_in_any_order_make_the_object(
    store: ObjectStore, whole: Check, sent: list[tuple[int, bytes]]
) -> None:
    if isinstance(store, ExternalStore):
        if b"" in (body for _, body in sent[:-1]):
            pytest.skip("the endpoint takes no part without bytes")
        last = max(number for number, _ in sent)
        sent = [(number, body if number == last else body[:1] * (LEAST + len(body))) for number, body in sent]
    upload = store.create_upload("data", "k")
    latest: dict[int, tuple[bytes, Part]] = {}
    for number, body in sent:
        latest[number] = (body, store.put_part("data", "k", upload.upload_id, number, body))
    bodies = [latest[number][0] for number in sorted(latest)]
    info = store.complete_upload("data", "k", upload.upload_id, names([part for _, part in latest.values()]))
    assert read(store, "k") == b"".join(bodies)
    assert info.etag == combined(*bodies)
    assert store.list_uploads("data").uploads == ()
    whole(store)


def test_parts_that_are_not_named_are_left_out(store: ObjectStore, bodies: list[bytes]) -> None:
    upload = store.create_upload("data", "k")
    parts = [store.put_part("data", "k", upload.upload_id, n, bodies[n - 1]) for n in (1, 2, 3)]
    with pytest.raises(NotFound):
        store.complete_upload(
            "data", "k", upload.upload_id, names(parts[:2]), condition=Condition(if_match='"x"')
        )
    # The refusal took nothing away.
    store.complete_upload("data", "k", upload.upload_id, names([parts[0], parts[2]]))
    assert read(store, "k") == bodies[0] + bodies[2]


def test_a_refused_completion_can_be_made_again(store: ObjectStore, bodies: list[bytes]) -> None:
    store.put("data", "k", b"there")
    upload = store.create_upload("data", "k")
    parts = [store.put_part("data", "k", upload.upload_id, n, bodies[n - 1]) for n in (1, 2, 3)]
    with pytest.raises(Conflict) as caught:
        store.complete_upload(
            "data", "k", upload.upload_id, names(parts), condition=Condition(if_none_match="*")
        )
    assert caught.value.code == "precondition_failed" and read(store, "k") == b"there"
    store.complete_upload("data", "k", upload.upload_id, names(parts))
    assert read(store, "k") == b"".join(bodies)


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
def test_wrong_completions_are_refused(store: ObjectStore, wanted: list[tuple[int, str]], code: str) -> None:
    upload = store.create_upload("data", "k")
    etags = {
        name: store.put_part("data", "k", upload.upload_id, n, name.encode()).etag
        for n, name in ((1, "a"), (2, "b"))
    }
    with pytest.raises(InvalidInput) as caught:
        store.complete_upload("data", "k", upload.upload_id, [(n, etags.get(e, "0" * 32)) for n, e in wanted])
    assert caught.value.code == code
    assert len(store.list_parts("data", "k", upload.upload_id).parts) == 2


def test_small_parts_are_refused_when_asked(store: ObjectStore, bodies: list[bytes]) -> None:
    upload = store.create_upload("data", "k")
    parts = [store.put_part("data", "k", upload.upload_id, n, bodies[n - 1]) for n in (1, 2, 3)]
    with pytest.raises(InvalidInput) as caught:
        store.complete_upload("data", "k", upload.upload_id, names(parts), min_part_size=len(bodies[0]) + 1)
    assert caught.value.code == "entity_too_small"
    info = store.complete_upload("data", "k", upload.upload_id, names(parts), min_part_size=len(bodies[0]))
    assert info.size == sum(map(len, bodies))


def test_aborting_leaves_nothing(store: ObjectStore) -> None:
    upload = store.create_upload("data", "k")
    store.put_part("data", "k", upload.upload_id, 1, b"a" * 10)
    store.put_part("data", "k", upload.upload_id, 1, b"A" * 10)
    late = store.upload_part("data", "k", upload.upload_id, 2, size=10)
    store.abort_upload("data", "k", upload.upload_id)
    with pytest.raises(NotFound), late:
        late.write(b"b" * 10)
        late.commit()
    for action in (store.abort_upload, store.list_parts, store.find_upload):
        with pytest.raises(NotFound) as caught:
            action("data", "k", upload.upload_id)
        assert caught.value.code == "no_such_upload"


def test_a_wrong_checksum_keeps_the_part_before(store: ObjectStore) -> None:
    upload = store.create_upload("data", "k")
    first = store.put_part("data", "k", upload.upload_id, 1, b"good")
    with pytest.raises(InvalidInput):
        store.put_part("data", "k", upload.upload_id, 1, b"evil", expected_md5="0" * 32)
    store.complete_upload("data", "k", upload.upload_id, names([first]))
    assert read(store, "k") == b"good"


def test_parts_can_be_copied_from_objects(store: ObjectStore) -> None:
    unit = LEAST // 5 if isinstance(store, ExternalStore) else 1
    source = b"".join(b"%d" % digit * unit for digit in range(10))
    store.put("data", "source", source)
    upload = store.create_upload("data", "k")
    parts = [
        store.copy_part("data", "k", upload.upload_id, 1, "data", "source", start=2 * unit, length=5 * unit),
        store.copy_part("data", "k", upload.upload_id, 2, "data", "source"),
        store.put_part("data", "k", upload.upload_id, 3, io.BytesIO(b"streamed")),
    ]
    for start, length in ((len(source) - 2, 3), (len(source) + 1, 0)):
        with pytest.raises(InvalidInput) as caught:
            store.copy_part("data", "k", upload.upload_id, 4, "data", "source", start=start, length=length)
        assert caught.value.code == "invalid_range"
    store.complete_upload("data", "k", upload.upload_id, names(parts))
    assert read(store, "k") == source[2 * unit : 7 * unit] + source + b"streamed"


def test_listing_parts_and_uploads_page_by_page(store: ObjectStore) -> None:
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


def test_a_bucket_takes_its_unfinished_uploads_along(store: ObjectStore, whole: Check) -> None:
    store.create_bucket("other", "w1")
    upload = store.create_upload("other", "k")
    store.put_part("other", "k", upload.upload_id, 1, b"a")
    store.delete_bucket("other")
    whole(store)
    store.create_bucket("other", "w1")
    assert store.list_uploads("other").uploads == ()


def test_two_complete_and_one_aborts_at_once(store: ObjectStore, whole: Check, bodies: list[bytes]) -> None:
    for turn in range(6):
        upload = store.create_upload("data", "k")
        parts = [store.put_part("data", "k", upload.upload_id, n, bodies[n - 1]) for n in (1, 2, 3)]
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
            thread.join(90)
        assert set(ends) <= {combined(*bodies), "no_such_upload"}
        if not turn % 2:
            assert ends == [combined(*bodies)] * 2
            assert read(store, "k") == b"".join(bodies)
        assert store.list_uploads("data").uploads == ()
    whole(store)


def test_large_parts_keep_what_was_said_of_the_object(store: ObjectStore) -> None:
    body = os.urandom(17 << 20)
    upload = store.create_upload(
        "data", "k", content_type="x/y", metadata={"a": "1"}, attributes={"acl": "p"}
    )
    parts = [
        store.put_part("data", "k", upload.upload_id, 1, iter([body[: 9 << 20], body[9 << 20 :]])),
        store.put_part("data", "k", upload.upload_id, 2, b"end"),
    ]
    found = store.find_upload("data", "k", upload.upload_id)
    assert (found.content_type, found.metadata, found.attributes) == ("x/y", {"a": "1"}, {"acl": "p"})
    store.complete_upload("data", "k", upload.upload_id, names(parts))
    info = store.info("data", "k")
    assert (info.content_type, info.metadata, info.attributes["acl"]) == ("x/y", {"a": "1"}, "p")
    assert read(store, "k") == body + b"end" and list(store.piece_sizes("data", "k")) == [17 << 20, 3]
