"""The external object store: opened by every process of the platform that can reach the endpoint."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO, cast

from trainshed.model.errors import Unavailable
from trainshed.model.names import check_key
from trainshed.store.external.address import parse_address
from trainshed.store.external.object_facts import read_facts, write_facts
from trainshed.store.external.parts import OpenParts
from trainshed.store.external.remote_file import RemoteFile, open_remote
from trainshed.store.external.upkeep import UpkeepOperations
from trainshed.store.external.upload import ObjectUpload, PartsWriter
from trainshed.store.external.wire import Refused
from trainshed.store.object_store import FOLDER_TYPE, Condition, MultipartUpload, ObjectInfo
from trainshed.store.outage import Patience
from trainshed.store.rules import checked_metadata, pieces_of

__all__ = ["ExternalStore", "open_external_store"]

_CHUNK = 1 << 20
_TRIES = 5


def open_external_store(url: str, patience: Patience | None = None) -> ExternalStore:
    """Open the store at a URL such as `Address.url` gives."""
    store = ExternalStore(parse_address(url))
    if patience is not None:
        store.wait_with(patience)
    return store


class ExternalStore(UpkeepOperations):
    """Buckets and objects in one bucket of an S3 or OBS endpoint, safe for many machines at once."""

    def wait_with(self, patience: Patience) -> None:
        """From now on, wait so long for an endpoint that cannot be reached."""
        self._wire.patience = patience

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
        """Begin an object whose bytes arrive piece by piece."""
        check_key(key)
        self._require(bucket)
        self._layout.name(bucket, key)
        about = checked_metadata(metadata)

        def put(data: bytearray, md5: str, late: Mapping[str, str]) -> ObjectInfo:
            everything = {**(attributes or {}), **late}
            info = ObjectInfo(bucket, key, len(data), "", 0.0, content_type, about, everything)
            return self._put_bytes(info, write_facts(content_type, about, everything), data, condition, md5)

        def begin() -> PartsWriter:
            upload_id = f"put-{time.time_ns():x}-{os.urandom(4).hex()}"
            upload = MultipartUpload(
                bucket, key, upload_id, time.time(), content_type, about, dict(attributes or {})
            )
            return OpenParts(self, upload, condition)

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
            attributes=attributes,
            condition=condition,
            with_sha256=bool(expected_sha256),
        ) as upload:
            for piece in pieces_of(data):
                upload.write(piece)
            return upload.commit(expected_md5=expected_md5, expected_sha256=expected_sha256)

    def put_folder(self, bucket: str, key: str) -> ObjectInfo:
        """Make a folder: an empty object whose key ends in `/`."""
        return self.put(bucket, key.rstrip("/") + "/", b"", content_type=FOLDER_TYPE)

    # --- reading ---

    @contextmanager
    def open(self, bucket: str, key: str, start: int = 0, length: int | None = None) -> Iterator[BinaryIO]:
        """Read an object, or a range of it."""
        with io.BufferedReader(self._open(bucket, key, start, length), _CHUNK) as reader:
            yield cast(BinaryIO, reader)

    def open_object(self, bucket: str, key: str, version_id: str = "") -> tuple[ObjectInfo, BinaryIO]:
        """An object and its bytes, both of the same moment. The caller closes the file."""
        self._check_version(key, version_id)
        file = self._open(bucket, key, 0, None)
        return file.info, cast(BinaryIO, io.BufferedReader(file, _CHUNK))

    def _open(self, bucket: str, key: str, start: int, length: int | None) -> RemoteFile:
        check_key(key)
        try:
            return open_remote(self._wire, bucket, key, self._layout.name(bucket, key), start, length)
        except Refused as refused:
            raise self._explain(refused, bucket, key) from refused

    def fetch_to_file(self, bucket: str, key: str, target: int) -> ObjectInfo:
        """Copy an object's bytes into an open file descriptor; what broke off goes on where it stopped."""
        check_key(key)
        name = self._layout.name(bucket, key)
        start = os.lseek(target, 0, os.SEEK_CUR)
        buffer = memoryview(b"")
        info: ObjectInfo | None = None
        done = 0
        for _ in range(_TRIES):
            headers = {"range": f"bytes={done}-", "if-match": f'"{info.etag}"'} if info and done else {}
            try:
                with self._wire.stream("GET", name, headers=headers) as body:
                    info = info if info and done else read_facts(bucket, key, body.headers)
                    if not buffer:
                        # Most objects are small: no more room than they need.
                        buffer = memoryview(bytearray(min(_CHUNK, info.size + 1)))
                    while count := body.readinto(buffer):
                        view = buffer[:count]
                        while view:
                            view = view[os.write(target, view) :]
                        done += count
            except Refused as refused:
                if refused.status not in (412, 416):
                    raise self._explain(refused, bucket, key) from refused
                info = None  # Replaced while it was read.
            except ConnectionError:
                continue
            if info is not None and done == info.size:
                return info
            os.ftruncate(target, start)
            os.lseek(target, start, os.SEEK_SET)
            info, done = None, 0
        raise Unavailable(
            f"Reading '{key}' from the external store broke off.",
            hint="Try again; if it stays so, ask an administrator to look at the endpoint.",
            code="store_unreachable",
        )
