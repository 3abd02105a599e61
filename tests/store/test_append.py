"""Objects that grow: positions, copies, readers in between."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from trainshed.model.errors import Conflict, TrainshedError
from trainshed.store.object_store import ObjectInfo, ObjectStore

Check = Callable[[ObjectStore], None]


def append(store: ObjectStore, position: int, data: bytes, key: str = "log") -> ObjectInfo:
    with store.append("data", key, position) as upload:
        upload.write(data)
        return upload.commit()


def read(store: ObjectStore, key: str = "log") -> bytes:
    with store.open("data", key) as file:
        return file.read()


def test_a_wrong_position_or_kind_is_refused(store: ObjectStore, whole: Check) -> None:
    with pytest.raises(Conflict) as caught:
        append(store, 5, b"x")
    assert (caught.value.code, caught.value.where) == ("position_not_equal_to_length", "0")
    append(store, 0, b"12345")
    for position in (0, 4, 6):
        with pytest.raises(Conflict) as caught:
            append(store, position, b"x")
        assert caught.value.where == "5"
    store.put("data", "whole", b"x")
    with pytest.raises(Conflict) as caught:
        append(store, 1, b"x", "whole")
    assert caught.value.code == "object_not_appendable"
    store.put("data", "log", b"now a whole one")
    with pytest.raises(Conflict):
        append(store, 15, b"x")
    assert read(store) == b"now a whole one"
    whole(store)


def test_of_two_at_one_position_one_wins(store: ObjectStore, whole: Check) -> None:
    append(store, 0, b"0")
    for turn in range(8):
        position, ends = 1 + turn, []

        def write(letter: bytes, position: int, ends: list[str]) -> None:
            try:
                append(store, position, letter)
                ends.append(letter.decode())
            except TrainshedError as error:
                ends.append(error.code)

        threads = [
            threading.Thread(target=write, args=(letter, position, ends)) for letter in (b"a", b"b", b"c")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
        (winner,) = [end for end in ends if len(end) == 1]
        assert ends.count("position_not_equal_to_length") == 2
        assert read(store)[-1:] == winner.encode() and len(read(store)) == position + 1
    whole(store)


def test_an_object_grows(store: ObjectStore) -> None:
    first = append(store, 0, b"one ")
    assert first.is_appendable and first.size == 4
    second, third = append(store, 4, b"two "), append(store, 8, b"three")
    assert third.size == 13 and read(store) == b"one two three"
    assert len({first.etag, second.etag, third.etag}) == 3 and store.info("data", "log").is_appendable
    again = append(store, 13, b"")
    assert (again.size, again.etag) == (13, third.etag)


def test_those_who_copied_or_opened_see_nothing_of_what_follows(store: ObjectStore) -> None:
    append(store, 0, b"one")
    store.copy("data", "log", "data", "copy")
    _, opened = store.open_object("data", "log")
    append(store, 3, b"two")
    with opened:
        assert opened.read() == b"one"
    assert read(store, "copy") == b"one" and not store.info("data", "copy").is_appendable
    renamed = store.rename("data", "log", "moved")
    assert renamed.is_appendable and append(store, 6, b"!", "moved").size == 7


def test_large_pieces_behind_large_ones(store: ObjectStore) -> None:
    pieces = [os.urandom(size) for size in (3 << 20, 4 << 20, 6 << 20, 100, 20 << 20)]
    whole = b""
    with store.append("data", "log", 0, content_type="x/y", metadata={"m": "1"}) as upload:
        upload.write(b"")
        upload.commit()
    for piece in pieces:
        append(store, len(whole), piece)
        whole += piece
    info = store.info("data", "log")
    assert (info.size, info.content_type, info.metadata) == (len(whole), "x/y", {"m": "1"})
    assert read(store) == whole
