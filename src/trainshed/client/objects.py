"""The object store from Python: buckets and objects, with checksums on both ways and retries."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import quote, unquote

from trainshed.client.object_digest import ObjectDigest, parse_pieces
from trainshed.client.object_download import Beginning, download_file
from trainshed.client.object_parts import send_in_parts
from trainshed.client.object_wire import (
    ObjectWire,
    may_retry,
    retry_broken,
    wait_before_retry,
)
from trainshed.model.errors import Conflict, InvalidInput, NotFound, Unavailable

if TYPE_CHECKING:
    import httpx

__all__ = ["BucketEntry", "ObjectClient", "ObjectEntry", "ObjectPage"]

# Called with the number of bytes that just moved (less than 0 when some must be moved again).
OnBytes = Callable[[int], None]

_CHUNK = 1 << 20
# From this size on a file travels in parts.
IN_PARTS_FROM = 32 << 20
_META = "x-trainshed-meta-"


@dataclass(frozen=True)
class BucketEntry:
    """A bucket of the workspace."""

    name: str
    created_at: float


@dataclass(frozen=True)
class ObjectEntry:
    """An object without its bytes."""

    key: str
    size: int
    etag: str
    modified_at: float
    content_type: str = "application/octet-stream"
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ObjectPage:
    """One page of a listing; `next_after` is empty on the last one."""

    objects: tuple[ObjectEntry, ...]
    folders: tuple[str, ...] = ()
    next_after: str = ""


class ObjectClient:
    """A client of the object store. Safe from many threads."""

    def __init__(self, url: str, token: str, *, timeout: float = 60.0, ca: str = "") -> None:
        self._wire = ObjectWire(url, token, timeout, ca)

    def __enter__(self) -> ObjectClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._wire.close()

    # --- buckets ---

    def buckets(self) -> list[BucketEntry]:
        """The buckets of the workspace."""
        found = self._wire.call("GET", "buckets")["buckets"]
        return [BucketEntry(bucket["name"], bucket["created_at"]) for bucket in found]

    def make_bucket(self, name: str) -> None:
        """Make a bucket."""
        self._wire.call("PUT", _bucket(name))

    def has_bucket(self, name: str) -> bool:
        """Whether there is such a bucket that the caller may read."""
        try:
            self._wire.call("GET", _bucket(name))
        except NotFound:
            return False
        return True

    def delete_bucket(self, name: str) -> None:
        """Remove an empty bucket."""
        self._wire.call("DELETE", _bucket(name))

    # --- objects ---

    def list(
        self, bucket: str, prefix: str = "", *, delimiter: str = "", after: str = "", limit: int = 1000
    ) -> ObjectPage:
        """One page of keys in exact byte order."""
        page = self._wire.call(
            "GET",
            _objects(bucket),
            {"prefix": prefix, "delimiter": delimiter, "after": after, "limit": str(limit)},
        )
        objects = tuple(ObjectEntry(**entry) for entry in page["objects"])
        return ObjectPage(objects, tuple(page["folders"]), page["next_after"])

    def walk(self, bucket: str, prefix: str = "") -> Iterator[ObjectEntry]:
        """All objects below a prefix, page by page."""
        after = ""
        while True:
            page = self.list(bucket, prefix, after=after)
            yield from page.objects
            after = page.next_after
            if not after:
                return

    def info(self, bucket: str, key: str) -> ObjectEntry:
        """What is known of an object."""

        def send() -> ObjectEntry:
            with self._wire.send("HEAD", _object(bucket), {"key": key}) as response:
                return _entry(key, response)

        try:
            return retry_broken(send)
        except NotFound:
            # The answer to HEAD has no body to say more.
            raise NotFound(
                f"There is no object '{key}' in the bucket '{bucket}'.",
                hint=f"See what is there: trainshed obs ls obs://{bucket}/",
                code="no_such_key",
            ) from None

    def put(
        self,
        bucket: str,
        key: str,
        data: bytes,
        *,
        content_type: str = "application/octet-stream",
        metadata: dict[str, str] | None = None,
    ) -> ObjectEntry:
        """Store bytes as an object."""
        md5 = hashlib.md5(data, usedforsecurity=False)
        headers = _put_headers(len(data), md5.digest(), content_type, metadata)
        return self._put(bucket, key, headers, lambda: iter([data]))

    def put_folder(self, bucket: str, key: str) -> ObjectEntry:
        """Make a folder: an empty object whose key ends in `/`."""
        return self.put(bucket, key.rstrip("/") + "/", b"", content_type="application/x-directory")

    def put_stream(
        self, bucket: str, key: str, source: BinaryIO, *, on_bytes: OnBytes | None = None
    ) -> ObjectEntry:
        """Store all that a stream gives. It is read once, so a broken connection is not retried."""
        md5 = hashlib.md5(usedforsecurity=False)

        def pieces() -> Iterator[bytes]:
            while piece := source.read(_CHUNK):
                md5.update(piece)
                if on_bytes:
                    on_bytes(len(piece))
                yield piece

        entry = self._put(bucket, key, {"content-type": "application/octet-stream"}, pieces, may_repeat=False)
        _check_md5(entry.etag, md5.hexdigest(), key)
        return entry

    def put_file(self, path: Path, bucket: str, key: str, *, on_bytes: OnBytes | None = None) -> ObjectEntry:
        """Store a local file, with its executable bit and its time. A large one goes in parts: a try that was cut
        off or killed is continued by the next."""
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise InvalidInput(
                    f"{path} is not a regular file.", hint="Give a file, or - for standard input."
                )
            metadata = {"mtime": repr(facts.st_mtime)}
            if facts.st_mode & stat.S_IXUSR:
                metadata["mode"] = "755"
            if facts.st_size >= IN_PARTS_FROM:
                made = send_in_parts(self._wire, path, file.fileno(), bucket, key, metadata, on_bytes)
                return ObjectEntry(**made)
            md5, size = _digest(file)
            headers = _put_headers(size, md5, "application/octet-stream", metadata)

            def pieces() -> Iterator[bytes]:
                file.seek(0)
                left = size
                while left > 0 and (piece := file.read(min(_CHUNK, left))):
                    left -= len(piece)
                    if on_bytes:
                        on_bytes(len(piece))
                    yield piece
                if left:
                    raise Conflict(
                        f"{path} became shorter while it was uploaded.",
                        hint="Upload it when nobody writes to it.",
                        code="file_changed",
                    )

            return self._put(bucket, key, headers, pieces, on_bytes=on_bytes)

    def read(self, bucket: str, key: str) -> bytes:
        """The bytes of an object that fits into memory."""
        return b"".join(self.stream(bucket, key))

    def stream(self, bucket: str, key: str, *, on_bytes: OnBytes | None = None) -> Iterator[bytes]:
        """The bytes of an object, piece by piece; goes on after a broken connection, and is checked at the end."""
        return self._stream(bucket, key, on_bytes, Beginning(), lambda entry: None)

    def _stream(
        self,
        bucket: str,
        key: str,
        on_bytes: OnBytes | None,
        begun: Beginning,
        meet: Callable[[ObjectEntry], None],
    ) -> Iterator[bytes]:
        """Like `stream`, behind what has come before; `meet` hears of the object before its first byte."""
        etag, done, attempt, size = begun.etag, begun.size, 0, -1
        digest: ObjectDigest | None = None
        while size < 0 or done < size:
            headers = {"range": f"bytes={done}-", "if-match": f'"{etag}"'} if done else {}
            before = done
            try:
                with self._wire.send("GET", _object(bucket), {"key": key}, headers=headers) as response:
                    entry = _entry(key, response)
                    if digest is None:
                        digest = ObjectDigest(parse_pieces(response.headers.get("x-trainshed-parts", "")))
                        begun.take(digest)
                    etag, size = entry.etag, entry.size
                    meet(entry)
                    for piece in response.iter_raw(_CHUNK):
                        digest.update(piece)
                        done += len(piece)
                        if on_bytes:
                            on_bytes(len(piece))
                        yield piece
            except Unavailable as error:
                # A connection that brought something counts as a new beginning.
                attempt = 0 if done > before else attempt
                if not may_retry(error, attempt):
                    raise
                wait_before_retry(attempt)
                attempt += 1
        if digest is not None:
            _check_md5(etag, digest.hexdigest(), key)

    def get_file(self, bucket: str, key: str, path: Path, *, on_bytes: OnBytes | None = None) -> ObjectEntry:
        """Bring an object into a local file, which appears whole and checked or not at all. A large one that was
        cut off is continued by the next try."""
        return download_file(
            lambda begun, meet: self._stream(bucket, key, on_bytes, begun, meet),
            f"{self._wire.url}/{bucket}/{key}",
            path,
            on_bytes,
        )

    def delete(self, bucket: str, key: str) -> bool:
        """Remove an object; tells whether there was one."""
        return bool(self._wire.call("DELETE", _object(bucket), {"key": key})["deleted"])

    def delete_prefix(self, bucket: str, prefix: str) -> int:
        """Remove all objects below a prefix; tells how many."""
        return int(self._wire.call("DELETE", _objects(bucket), {"prefix": prefix})["deleted"])

    def copy(self, bucket: str, key: str, to_bucket: str, to_key: str) -> ObjectEntry:
        """Copy one object within the store; no bytes travel."""
        query = {"key": to_key, "from_bucket": bucket, "from_key": key}
        return ObjectEntry(**self._wire.call("POST", _object(to_bucket), query))

    def copy_prefix(self, bucket: str, prefix: str, to_bucket: str, to_prefix: str) -> int:
        """Copy all objects below a prefix within the store, in one step; tells how many."""
        query = {"prefix": to_prefix, "from_bucket": bucket, "from_prefix": prefix}
        return int(self._wire.call("POST", _objects(to_bucket), query)["copied"])

    def _put(
        self,
        bucket: str,
        key: str,
        headers: dict[str, str],
        pieces: Callable[[], Iterator[bytes]],
        *,
        may_repeat: bool = True,
        on_bytes: OnBytes | None = None,
    ) -> ObjectEntry:
        sent = 0

        def counted() -> Iterator[bytes]:
            nonlocal sent
            for piece in pieces():
                sent += len(piece)
                yield piece

        def send() -> ObjectEntry:
            nonlocal sent
            if sent and on_bytes:
                on_bytes(-sent)
            sent = 0
            with self._wire.send(
                "PUT", _object(bucket), {"key": key}, headers=headers, content=counted()
            ) as answer:
                return ObjectEntry(**json.loads(answer.read()))

        return retry_broken(send) if may_repeat else send()


def _bucket(name: str) -> str:
    return f"buckets/{quote(name, safe='')}"


def _objects(bucket: str) -> str:
    return _bucket(bucket) + "/objects"


def _object(bucket: str) -> str:
    return _bucket(bucket) + "/object"


def _put_headers(size: int, md5: bytes, content_type: str, metadata: dict[str, str] | None) -> dict[str, str]:
    return {
        "content-length": str(size),
        "content-md5": base64.b64encode(md5).decode(),
        "content-type": content_type,
        **{_META + name: quote(value) for name, value in (metadata or {}).items()},
    }


def _entry(key: str, response: httpx.Response) -> ObjectEntry:
    headers = response.headers
    size = headers.get("content-range", "").rpartition("/")[2] or headers.get("content-length", "0")
    return ObjectEntry(
        key=key,
        size=int(size),
        etag=headers.get("etag", "").strip('"'),
        modified_at=float(headers.get("x-trainshed-modified", "0")),
        content_type=headers.get("content-type", ""),
        metadata={
            name.removeprefix(_META): unquote(value)
            for name, value in headers.items()
            if name.startswith(_META)
        },
    )


def _digest(file: BinaryIO) -> tuple[bytes, int]:
    md5, size = hashlib.md5(usedforsecurity=False), 0
    while piece := file.read(_CHUNK):
        md5.update(piece)
        size += len(piece)
    return md5.digest(), size


def _check_md5(expected: str, actual: str, key: str) -> None:
    # The ETag of an object that was appended to, or whose parts are not told, says nothing about its bytes.
    if ("-" in expected) == ("-" in actual) and expected != actual:
        raise Unavailable(
            f"What travelled as '{key}' is not what was sent (MD5 {actual} instead of {expected}).",
            hint="Try again.",
            code="checksum_mismatch",
        )
