"""Objects that grow. The endpoint cannot do that: the object is made anew, of its old bytes and the new ones.

What is short is read and written again; of what is longer, the endpoint takes the old bytes itself. Either way
the object is only replaced if it is still the one that was looked at, so that of two at one position one wins.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from trainshed.model.errors import Conflict, InvalidInput, NotFound, Unavailable
from trainshed.model.names import check_key
from trainshed.store.external.core import not_offered
from trainshed.store.external.edits import EditOperations
from trainshed.store.external.object_facts import write_facts
from trainshed.store.external.parts import OpenParts
from trainshed.store.external.remote_file import open_remote
from trainshed.store.external.upload import ObjectUpload, PartsWriter
from trainshed.store.external.wire import Refused
from trainshed.store.records import Condition, MultipartUpload, ObjectInfo
from trainshed.store.rules import check_position, checked_metadata

__all__ = ["AppendOperations"]

# The endpoint takes no part but the last that is smaller than 5 MiB, or larger than 5 GiB.
_LEAST_PART = 5 << 20
_COPY_PART = 1 << 30


class AppendOperations(EditOperations):
    """Appending to objects."""

    def append(
        self,
        bucket: str,
        key: str,
        position: int,
        *,
        content_type: str = "application/octet-stream",
        metadata: dict[str, str] | None = None,
        attributes: dict[str, str] | None = None,
    ) -> ObjectUpload:
        """Begin bytes that go behind those of an appendable object; its size must be `position` at `commit`."""
        check_key(key)
        if position < 0:
            raise InvalidInput("A position is 0 or more.", code="invalid_position")
        self._require(bucket)
        if not self._layout.terms.has_conditions:
            raise not_offered("cannot append: it does not honour conditions", "Write the object as a whole.")
        # Told before the bytes arrive; the write itself is bound to this very object.
        old = self._present(bucket, key, position)
        about = old or ObjectInfo(
            bucket,
            key,
            0,
            "",
            0.0,
            content_type,
            checked_metadata(metadata),
            dict(attributes or {}),
            is_appendable=True,
        )
        condition = Condition(if_match=old.etag) if old else Condition(if_none_match="*")

        def put(data: bytearray, md5: str, late: Mapping[str, str]) -> ObjectInfo:
            if old is not None and not data:
                return old
            try:
                if old is None or old.size + len(data) < _LEAST_PART * 2 or old.size < _LEAST_PART:
                    return self._put_whole(about, old, bytes(data), late, condition)
                parts = begin()
                try:
                    return parts.complete([parts.send(1, bytes(data))])
                except BaseException:
                    parts.abort()
                    raise
            except (Conflict, NotFound) as error:
                raise self._changed(bucket, key, position) from error

        def begin() -> PartsWriter:
            return _Behind(self, about, old, condition)

        return ObjectUpload(put, begin)

    def _present(self, bucket: str, key: str, position: int) -> ObjectInfo | None:
        """The object as it is, if bytes can be appended at that position."""
        try:
            info = self.info(bucket, key)
        except NotFound as error:
            if error.code != "no_such_key":
                raise
            info = None
        check_position(
            key,
            position,
            info.size if info else None,
            is_appendable=info is not None and info.is_appendable,
        )
        return info

    def _changed(self, bucket: str, key: str, position: int) -> Conflict:
        """Why an append came too late."""
        try:
            self._present(bucket, key, position)
        except Conflict as error:
            return error
        return Conflict(f"'{key}' was replaced meanwhile.", hint="Look at it again.", code="object_changed")

    def _put_whole(
        self,
        about: ObjectInfo,
        old: ObjectInfo | None,
        data: bytes,
        late: Mapping[str, str],
        condition: Condition,
    ) -> ObjectInfo:
        if old is None:
            about = replace(about, attributes={**about.attributes, **late})
        elif old.size:
            data = self._read_whole(old) + data
        headers = write_facts(about.content_type, about.metadata, about.attributes, is_appendable=True)
        return self._put_bytes(about, headers, data, condition)

    def _read_whole(self, info: ObjectInfo) -> bytes:
        name = self._layout.name(info.bucket, info.key)
        try:
            with open_remote(self._wire, info.bucket, info.key, name) as file:
                if file.info.etag == info.etag:
                    return file.readall()
        except Refused as refused:
            raise self._explain(refused, info.bucket, info.key) from refused
        raise Conflict(
            f"'{info.key}' was replaced meanwhile.", hint="Look at it again.", code="object_changed"
        )


class _Behind:
    """An upload in parts whose first ones are the bytes that are there already."""

    def __init__(
        self, store: AppendOperations, about: ObjectInfo, old: ObjectInfo | None, condition: Condition
    ) -> None:
        self._store = store
        self._old = old
        # What is too short to be a part of its own is sent together with the first new bytes.
        self._head = store._read_whole(old) if old is not None and 0 < old.size < _LEAST_PART else b""
        attributes = {name: text for name, text in about.attributes.items() if name != "upload-id"}
        upload = MultipartUpload(
            about.bucket,
            about.key,
            f"append-{time.time_ns():x}",
            time.time(),
            about.content_type,
            about.metadata,
            attributes,
        )
        self._parts = OpenParts(store, upload, condition, is_appendable=True)
        self._before: list[tuple[int, str]] = []
        if old is not None and not self._head and old.size:
            try:
                self._before = self._copy_old(old)
            except BaseException:
                self._parts.abort()
                raise

    def _copy_old(self, old: ObjectInfo) -> list[tuple[int, str]]:
        starts = list(range(0, old.size, _COPY_PART))
        # The last one takes along what would be too short.
        if len(starts) > 1 and old.size - starts[-1] < _LEAST_PART:
            starts.pop()
        ends = [*starts[1:], old.size]
        try:
            return [
                self._parts.copy(number, old, start, end)
                for number, (start, end) in enumerate(zip(starts, ends, strict=True), 1)
            ]
        except Unavailable as error:
            if error.code != "object_changed":
                raise
            raise Conflict(
                f"'{old.key}' was replaced meanwhile.", hint="Look at it again.", code="object_changed"
            ) from None

    def send(self, number: int, data: bytes) -> tuple[int, str]:
        """Send a part behind those that were there."""
        if number == 1 and self._head:
            data = self._head + data
        return self._parts.send(len(self._before) + number, data)

    def complete(self, parts: list[tuple[int, str]]) -> ObjectInfo:
        """Make the object of the old parts and the new."""
        try:
            return self._parts.complete([*self._before, *parts])
        except (Conflict, NotFound) as error:
            old = self._old
            if error.code == "no_such_upload" or old is None:
                raise
            raise self._store._changed(old.bucket, old.key, old.size) from error

    def abort(self) -> None:
        """Discard them."""
        self._parts.abort()
