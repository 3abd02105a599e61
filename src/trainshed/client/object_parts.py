"""Sending a large file in parts: several at once, each verified, and continued where an earlier try stopped."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trainshed.client.object_digest import choose_part_size, equal_parts
from trainshed.client.object_wire import ObjectWire, retry_broken
from trainshed.client.parallel import run_in_parallel
from trainshed.model.errors import Conflict, NotFound, Unavailable

__all__ = ["PART_SIZE_KEY", "send_in_parts"]

_CHUNK = 1 << 20
_META = "x-trainshed-meta-"
# Parts of one file that travel at once.
_THREADS = 4
# Kept with the object: whoever compares it with a file later must cut that file in the same way.
PART_SIZE_KEY = "part-size"


@dataclass(frozen=True)
class _Place:
    bucket: str
    key: str
    upload: str = ""

    def query(self, **more: str) -> dict[str, str]:
        upload = {"upload": self.upload} if self.upload else {}
        return {"key": self.key, **upload, **more}

    def path(self, name: str) -> str:
        return f"buckets/{quote(self.bucket, safe='')}/{name}"


def send_in_parts(
    wire: ObjectWire,
    path: Path,
    file: int,
    bucket: str,
    key: str,
    metadata: dict[str, str],
    on_bytes: Callable[[int], None] | None,
) -> dict[str, Any]:
    """Store an open file as an object; returns what the store says of it.

    A try that failed or was killed leaves its parts in the store: the next one for the same file (size, time
    and mode tell) sends only those that are missing.
    """
    facts = os.fstat(file)
    part_size = choose_part_size(facts.st_size)
    metadata = {**metadata, PART_SIZE_KEY: str(part_size)}
    place = _find_upload(wire, _Place(bucket, key), metadata)
    there = dict(_list_parts(wire, place))
    sizes = equal_parts(facts.st_size, part_size)
    etags: dict[int, str] = {}
    lock = threading.Lock()

    def tell(count: int) -> None:
        if on_bytes is not None:
            with lock:
                on_bytes(count)

    def send(number: int) -> None:
        offset, size = (number - 1) * part_size, sizes[number - 1]
        if there.get(number, ("", 0))[1] == size:
            etag = _digest(path, file, offset, size)
            if etag == there[number][0]:
                tell(size)
                etags[number] = etag
                return
        etags[number] = _send_part(wire, place, path, file, number, offset, size, tell)

    try:
        run_in_parallel(range(1, len(sizes) + 1), send, _THREADS)
        now = os.fstat(file)
        if (now.st_size, now.st_mtime_ns) != (facts.st_size, facts.st_mtime_ns):
            raise _changed(path)
    except Conflict:
        # These parts fit nothing any more.
        wire.call("DELETE", place.path("upload"), place.query())
        raise
    listing = json.dumps({"parts": [[number, etags[number]] for number in sorted(etags)]}).encode()

    def complete() -> dict[str, Any]:
        with wire.send("POST", place.path("upload"), place.query(), content=iter([listing])) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    # To say it twice does no harm.
    return retry_broken(complete)


def _find_upload(wire: ObjectWire, place: _Place, metadata: dict[str, str]) -> _Place:
    """An earlier upload of the same file, or a new one."""
    known = wire.call("GET", place.path("uploads"), place.query())["uploads"]
    same = [upload for upload in known if upload["metadata"] == metadata]
    if same:
        latest = max(same, key=lambda upload: upload["created_at"])
        return _Place(place.bucket, place.key, latest["upload"])
    headers = {_META + name: quote(value) for name, value in metadata.items()}

    def create() -> str:
        with wire.send("POST", place.path("uploads"), place.query(), headers=headers) as answer:
            return str(json.loads(answer.read())["upload"])

    return _Place(place.bucket, place.key, retry_broken(create))


def _list_parts(wire: ObjectWire, place: _Place) -> Iterator[tuple[int, tuple[str, int]]]:
    after = 0
    while True:
        try:
            page = wire.call("GET", place.path("upload"), place.query(after=str(after)))
        except NotFound:
            return
        for part in page["parts"]:
            yield part["number"], (part["etag"], part["size"])
        after = page["next_after"]
        if not after:
            return


def _send_part(
    wire: ObjectWire,
    place: _Place,
    path: Path,
    file: int,
    number: int,
    offset: int,
    size: int,
    tell: Callable[[int], None],
) -> str:
    told = 0

    def attempt() -> str:
        nonlocal told
        if told:
            tell(-told)
        told = 0
        md5 = hashlib.md5(usedforsecurity=False)

        def pieces() -> Iterator[bytes]:
            nonlocal told
            for piece in _read(path, file, offset, size):
                md5.update(piece)
                yield piece
                told += len(piece)
                tell(len(piece))

        headers = {"content-length": str(size)}
        query = place.query(number=str(number))
        with wire.send("PUT", place.path("upload"), query, headers=headers, content=pieces()) as answer:
            etag = str(json.loads(answer.read())["etag"])
        if etag != md5.hexdigest():
            # Told as a broken connection, for that is what it was: the part is sent again.
            raise Unavailable(
                f"Part {number} of {path} did not arrive as it was sent.",
                hint="Try again.",
                code="connection_lost",
            )
        return etag

    return retry_broken(attempt)


def _digest(path: Path, file: int, offset: int, size: int) -> str:
    md5 = hashlib.md5(usedforsecurity=False)
    for piece in _read(path, file, offset, size):
        md5.update(piece)
    return md5.hexdigest()


def _read(path: Path, file: int, offset: int, size: int) -> Iterator[bytes]:
    end = offset + size
    while offset < end:
        piece = os.pread(file, min(_CHUNK, end - offset), offset)
        if not piece:
            raise _changed(path)
        offset += len(piece)
        yield piece


def _changed(path: Path) -> Conflict:
    return Conflict(
        f"{path} changed while it was uploaded.",
        hint="Upload it when nobody writes to it.",
        code="file_changed",
    )
