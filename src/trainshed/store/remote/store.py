"""The object store of a platform on another machine, as far as a runner uses it."""

from __future__ import annotations

import binascii
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import parse_qs, quote, unquote, urlsplit

from trainshed.model.errors import Conflict, InvalidInput, Unavailable
from trainshed.model.names import check_key
from trainshed.store.external.upload import ObjectUpload
from trainshed.store.outage import Patience
from trainshed.store.records import FOLDER_TYPE, Bucket, Condition, Listing, ObjectInfo
from trainshed.store.remote.wire import PlatformWire
from trainshed.store.rules import checked_metadata, pieces_of

if TYPE_CHECKING:
    from trainshed.store.external.upload import PartsWriter
    from trainshed.store.object_store import Upload
    from trainshed.store.remote.remote_file import RemoteFile

__all__ = ["RemoteStore", "open_remote_store"]

_META = "x-trainshed-meta-"
_CHUNK = 1 << 20
_TRIES = 5


def open_remote_store(url: str, patience: Patience | None = None) -> RemoteStore:
    """Open the store at `http://host:port?token=FILE&ca=FILE`: the files hold the token and the CA to trust."""
    parts = urlsplit(url)
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    try:
        token = Path(options["token"]).read_text("ascii").strip()
    except (KeyError, OSError, ValueError):
        raise InvalidInput(
            f"The store at {parts.scheme}://{parts.netloc} needs a token.",
            hint="Name the file that holds it: http://host:port?token=/absolute/file.",
        ) from None
    address = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/_/v1"
    return RemoteStore(PlatformWire(address, token, ca=options.get("ca", ""), patience=patience))


class RemoteStore:
    """Buckets and objects over the platform's own protocol. Every method raises a `TrainshedError`.

    What is asked may be asked again: a platform that is away for a while costs only time.
    """

    def __init__(self, wire: PlatformWire) -> None:
        self._wire = wire

    def close(self) -> None:
        """Close all connections."""
        self._wire.close()

    # --- buckets ---

    def bucket(self, name: str) -> Bucket:
        """What is known of a bucket."""
        if name.startswith("."):
            # The platform's own: it is there, and the platform judges every key of it by itself.
            return Bucket(name, "", 0.0)
        found = self._wire.call("GET", _bucket(name))
        return Bucket(found["name"], found["workspace_id"], found["created_at"], found.get("versioning", ""))

    # --- writing ---

    def upload(
        self,
        bucket: str,
        key: str,
        *,
        content_type: str = "application/octet-stream",
        metadata: dict[str, str] | None = None,
        attributes: dict[str, str] | None = None,
        condition: Condition | None = None,
        with_sha256: bool = False,
    ) -> ObjectUpload:
        """Begin an object whose bytes arrive piece by piece: a large one travels in parts, each sent until it
        is there."""
        check_key(key)
        headers = {
            "content-type": content_type,
            **{_META + name: quote(value) for name, value in checked_metadata(metadata).items()},
        }

        def put(data: bytearray, md5: str, late: Mapping[str, str]) -> ObjectInfo:
            sent = {
                **headers,
                **_condition_headers(condition),
                "content-md5": binascii.b2a_base64(bytes.fromhex(md5), newline=False).decode(),
            }
            return _info(
                bucket, self._wire.call("PUT", _object(bucket), {"key": key}, headers=sent, body=data)
            )

        def begin() -> PartsWriter:
            found = self._wire.call("POST", f"{_bucket(bucket)}/uploads", {"key": key}, headers=headers)
            return _Parts(self._wire, bucket, key, found["upload"], condition)

        return ObjectUpload(put, begin, with_sha256=with_sha256)

    def put(
        self,
        bucket: str,
        key: str,
        data: bytes | BinaryIO | Iterable[bytes],
        *,
        content_type: str = "application/octet-stream",
        metadata: dict[str, str] | None = None,
        attributes: dict[str, str] | None = None,
        condition: Condition | None = None,
        expected_md5: str = "",
        expected_sha256: str = "",
    ) -> ObjectInfo:
        """Store an object, in place of the one that had its key."""
        with self.upload(
            bucket,
            key,
            content_type=content_type,
            metadata=metadata,
            condition=condition,
            with_sha256=bool(expected_sha256),
        ) as upload:
            for piece in pieces_of(data):
                upload.write(piece)
            return upload.commit(expected_md5=expected_md5, expected_sha256=expected_sha256)

    def put_folder(self, bucket: str, key: str) -> ObjectInfo:
        """Make a folder: an empty object whose key ends in `/`."""
        return self.put(bucket, key.rstrip("/") + "/", b"", content_type=FOLDER_TYPE)

    def append(self, bucket: str, key: str, position: int, **_: Any) -> Upload:
        """Begin bytes that go behind those of an appendable object; its size must be `position` at `commit`."""
        from trainshed.store.remote.append import AppendUpload

        check_key(key)

        def send(data: bytes) -> ObjectInfo:
            query = {"key": key, "position": str(position)}
            try:
                return _info(bucket, self._wire.call("PATCH", _object(bucket), query, body=data))
            except Conflict:
                # An answer that was lost on the way: what was sent is there already.
                info = self.info(bucket, key)
                if info.size != position + len(data) or not self._ends_with(info, position, data):
                    raise
                return info

        return AppendUpload(send)

    def _ends_with(self, info: ObjectInfo, position: int, data: bytes) -> bool:
        with self.open(info.bucket, info.key, position, len(data)) as file:
            return file.read() == data

    def delete(self, bucket: str, key: str) -> bool:
        """Remove an object; tells whether there was one."""
        return bool(self._wire.call("DELETE", _object(bucket), {"key": key})["deleted"])

    def delete_prefix(self, bucket: str, prefix: str) -> int:
        """Remove all objects below a prefix; tells how many."""
        return int(self._wire.call("DELETE", f"{_bucket(bucket)}/objects", {"prefix": prefix})["deleted"])

    def copy(self, bucket: str, key: str, to_bucket: str, to_key: str, **_: Any) -> ObjectInfo:
        """Copy one object within the store."""
        query = {"key": to_key, "from_bucket": bucket, "from_key": key}
        return _info(to_bucket, self._wire.call("POST", _object(to_bucket), query))

    def copy_prefix(self, bucket: str, prefix: str, to_bucket: str, to_prefix: str) -> int:
        """Copy all objects below a prefix in one step."""
        query = {"prefix": to_prefix, "from_bucket": bucket, "from_prefix": prefix}
        return int(self._wire.call("POST", f"{_bucket(to_bucket)}/objects", query)["copied"])

    # --- reading ---

    def info(self, bucket: str, key: str, version_id: str = "") -> ObjectInfo:
        """What is known of an object."""
        check_key(key)
        with self._wire.stream("HEAD", _object(bucket), {"key": key}) as answer:
            return _from_headers(bucket, key, answer.headers)

    def piece_sizes(self, bucket: str, key: str, version_id: str = "") -> Sequence[int]:
        """The sizes of the parts that an object was made of; nothing where they are too many to be told."""
        with self._wire.stream(
            "GET", _object(bucket), {"key": key}, headers={"range": "bytes=0-0"}
        ) as answer:
            told = answer.headers.get("x-trainshed-parts", "")
        sizes: list[int] = []
        for run in filter(None, told.split(",")):
            size, _, count = run.partition("x")
            sizes += [int(size)] * int(count or 1)
        return sizes

    @contextmanager
    def open(self, bucket: str, key: str, start: int = 0, length: int | None = None) -> Iterator[BinaryIO]:
        """Read an object, or a range of it."""
        info = self.info(bucket, key)
        end = info.size if length is None else min(info.size, start + length)
        with io.BufferedReader(self._file(info, start, end), _CHUNK) as reader:
            yield cast(BinaryIO, reader)

    def open_object(self, bucket: str, key: str, version_id: str = "") -> tuple[ObjectInfo, BinaryIO]:
        """An object and its bytes, both of the same moment. The caller closes the file."""
        info = self.info(bucket, key)
        return info, cast(BinaryIO, io.BufferedReader(self._file(info, 0, info.size), _CHUNK))

    def _file(self, info: ObjectInfo, start: int, end: int) -> RemoteFile:
        from trainshed.store.remote.remote_file import RemoteFile

        return RemoteFile(self._wire, _object(info.bucket), info, start, end)

    def fetch_to_file(self, bucket: str, key: str, target: int) -> ObjectInfo:
        """Copy an object's bytes into an open file descriptor; what broke off goes on where it stopped."""
        check_key(key)
        start = os.lseek(target, 0, os.SEEK_CUR)
        buffer = memoryview(bytearray(_CHUNK))
        info: ObjectInfo | None = None
        done, failures = 0, 0
        while failures < _TRIES:
            headers = {"range": f"bytes={done}-", "if-match": f'"{info.etag}"'} if info and done else {}
            before = done
            try:
                with self._wire.stream("GET", _object(bucket), {"key": key}, headers=headers) as answer:
                    info = info if info and done else _from_headers(bucket, key, answer.headers)
                    while count := answer.readinto(buffer):
                        view = buffer[:count]
                        while view:
                            view = view[os.write(target, view) :]
                        done += count
            except ConnectionError:
                failures = failures + 1 if done == before else 0
                continue
            except Conflict as changed:
                if changed.code != "object_changed":
                    raise
                failures, info = failures + 1, None
            if info is not None and done == info.size:
                return info
            os.ftruncate(target, start)
            os.lseek(target, start, os.SEEK_SET)
            info, done = None, 0
        raise Unavailable(
            f"Reading '{key}' from the platform's store broke off.",
            hint="Can the node still reach the platform?",
            code="store_unreachable",
        )

    def list(
        self, bucket: str, prefix: str = "", *, delimiter: str = "", after: str = "", limit: int = 1000
    ) -> Listing:
        """One page of a listing in exact key order."""
        query = {"prefix": prefix, "delimiter": delimiter, "after": after, "limit": str(limit)}
        page = self._wire.call("GET", f"{_bucket(bucket)}/objects", query)
        return Listing(
            tuple(_info(bucket, item) for item in page["objects"]), tuple(page["folders"]), page["next_after"]
        )

    def walk(self, bucket: str, prefix: str = "") -> Iterator[ObjectInfo]:
        """All objects below a prefix, page by page."""
        after = ""
        while True:
            page = self.list(bucket, prefix, after=after)
            yield from page.objects
            after = page.next_after
            if not after:
                return


class _Parts:
    """An upload in parts at the platform."""

    def __init__(
        self, wire: PlatformWire, bucket: str, key: str, upload: str, condition: Condition | None
    ) -> None:
        self._wire = wire
        self._bucket = bucket
        self._path = f"{_bucket(bucket)}/upload"
        self._query = {"key": key, "upload": upload}
        self._condition = condition

    def send(self, number: int, data: bytes) -> tuple[int, str]:
        """Send a part; tells its number and ETag."""
        # Nobody sends parts who has not loaded it; small objects need none.
        import hashlib

        digest = hashlib.md5(data, usedforsecurity=False).digest()
        md5 = binascii.b2a_base64(digest, newline=False).decode()
        query = {**self._query, "number": str(number)}
        found = self._wire.call("PUT", self._path, query, headers={"content-md5": md5}, body=data)
        return number, found["etag"]

    def complete(self, parts: list[tuple[int, str]]) -> ObjectInfo:
        """Make the object of them. To say it twice does no harm."""
        body = json.dumps({"parts": parts}).encode()
        headers = _condition_headers(self._condition)
        return _info(
            self._bucket, self._wire.call("POST", self._path, self._query, headers=headers, body=body)
        )

    def abort(self) -> None:
        """Discard them."""
        with self._wire.send("DELETE", self._path, self._query):
            pass


def _bucket(name: str) -> str:
    return f"buckets/{quote(name, safe='')}"


def _object(bucket: str) -> str:
    return _bucket(bucket) + "/object"


def _condition_headers(condition: Condition | None) -> dict[str, str]:
    if condition is None:
        return {}
    named = {"if-match": condition.if_match, "if-none-match": condition.if_none_match}
    return {name: value if value == "*" else f'"{value}"' for name, value in named.items() if value}


def _info(bucket: str, data: dict[str, Any]) -> ObjectInfo:
    return ObjectInfo(
        bucket,
        data["key"],
        data["size"],
        data["etag"],
        data["modified_at"],
        data["content_type"],
        data["metadata"],
    )


def _from_headers(bucket: str, key: str, headers: Mapping[str, str]) -> ObjectInfo:
    size = headers.get("content-range", "").rpartition("/")[2] or headers.get("content-length", "0")
    return ObjectInfo(
        bucket,
        key,
        int(size),
        headers.get("etag", "").strip('"'),
        float(headers.get("x-trainshed-modified", "0")),
        headers.get("content-type", ""),
        {
            name.removeprefix(_META): unquote(value)
            for name, value in headers.items()
            if name.startswith(_META)
        },
        is_appendable="x-trainshed-appendable" in headers,
    )
