"""Objects that arrive in parts, in requests of any process: the endpoint keeps the parts, a record of ours the rest."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

from trainshed.model.errors import InvalidInput, NotAllowed, NotFound
from trainshed.model.names import check_key
from trainshed.store.external.layout import list_page, names_in
from trainshed.store.external.object_facts import bare_etag
from trainshed.store.external.parts import PartsOperations
from trainshed.store.external.upload import PartReception
from trainshed.store.external.wire import Refused
from trainshed.store.records import Condition, MultipartUpload, ObjectInfo, Part, PartListing, UploadListing
from trainshed.store.rules import (
    MAX_PARTS,
    check_part_number,
    check_part_order,
    check_part_sizes,
    checked_metadata,
    no_such_upload,
    pieces_of,
    wrong_part,
)

__all__ = ["MultipartOperations"]

_KNOWN = 10_000


class MultipartOperations(PartsOperations):
    """Begin, fill, complete and abort multipart uploads."""

    def create_upload(
        self,
        bucket: str,
        key: str,
        *,
        content_type: str = "application/octet-stream",
        metadata: dict[str, str] | None = None,
        attributes: dict[str, str] | None = None,
    ) -> MultipartUpload:
        """Begin an object that arrives in parts."""
        check_key(key)
        self._require(bucket)
        upload = MultipartUpload(
            bucket,
            key,
            f"{time.time_ns():016x}{secrets.token_hex(8)}",
            time.time(),
            content_type,
            checked_metadata(metadata),
            dict(attributes or {}),
        )
        endpoint_id = self._begin_parts(upload)
        record = {
            "key": key,
            "endpoint_id": endpoint_id,
            "created_at": upload.created_at,
            "content_type": content_type,
            "metadata": upload.metadata,
            "attributes": upload.attributes,
        }
        try:
            self._wire.ask(
                "PUT",
                self._record_name(bucket, upload.upload_id),
                headers={"content-type": "application/json"},
                body=json.dumps(record).encode(),
            )
        except Refused as refused:
            raise self._explain(refused, bucket, key) from refused
        return upload

    def find_upload(self, bucket: str, key: str, upload_id: str) -> MultipartUpload:
        """What is known of an unfinished upload."""
        return self._find_upload(bucket, key, upload_id)[0]

    def upload_part(
        self,
        bucket: str,
        key: str,
        upload_id: str,
        number: int,
        *,
        size: int | None = None,
        with_sha256: bool = False,
    ) -> PartReception:
        """Begin a part."""
        check_part_number(number)
        upload, endpoint_id = self._find_upload(bucket, key, upload_id)

        def send(data: bytes | memoryview, attributes: Mapping[str, str]) -> Part:
            etag = self._send_part(upload, endpoint_id, number, data)
            return Part(number, etag, len(data), time.time(), dict(attributes))

        return PartReception(send, with_sha256=with_sha256)

    def put_part(
        self,
        bucket: str,
        key: str,
        upload_id: str,
        number: int,
        data: bytes | BinaryIO | Iterable[bytes],
        *,
        expected_md5: str = "",
        expected_sha256: str = "",
    ) -> Part:
        """Store a part, in place of the one that had its number."""
        with self.upload_part(bucket, key, upload_id, number, with_sha256=bool(expected_sha256)) as upload:
            for piece in pieces_of(data):
                upload.write(piece)
            return upload.commit(expected_md5=expected_md5, expected_sha256=expected_sha256)

    def copy_part(
        self,
        bucket: str,
        key: str,
        upload_id: str,
        number: int,
        from_bucket: str,
        from_key: str,
        *,
        version_id: str = "",
        start: int = 0,
        length: int | None = None,
    ) -> Part:
        """Make a part from an object, or from a range of it. The bytes stay at the endpoint."""
        check_part_number(number)
        upload, endpoint_id = self._find_upload(bucket, key, upload_id)
        info = self.info(from_bucket, from_key, version_id)
        end = info.size if length is None else start + length
        if not 0 <= start <= end <= info.size:
            raise InvalidInput(
                f"The range does not lie within the {info.size} bytes of '{from_key}'.",
                hint="Ask for bytes that are there.",
                code="invalid_range",
            )
        if start == end:
            # The endpoint knows no empty range.
            etag = self._send_part(upload, endpoint_id, number, b"")
            return Part(number, etag, 0, time.time())
        etag = self._copy_part(upload, endpoint_id, number, info, start, end)
        return Part(number, etag, end - start, time.time())

    def list_parts(
        self, bucket: str, key: str, upload_id: str, *, after: int = 0, limit: int = 1000
    ) -> PartListing:
        """One page of the parts that were received."""
        upload, endpoint_id = self._find_upload(bucket, key, upload_id)
        page, has_more = self._parts_page(upload, endpoint_id, after, max(1, limit))
        parts = list({part.number: part for part in sorted(page, key=lambda part: part.modified_at)}.values())
        parts.sort(key=lambda part: part.number)
        if limit <= 0:
            return PartListing(upload, (), after if parts else 0)
        return PartListing(upload, tuple(parts), parts[-1].number if has_more and parts else 0)

    def list_uploads(
        self,
        bucket: str,
        prefix: str = "",
        *,
        delimiter: str = "",
        after_key: str = "",
        after_upload: str = "",
        limit: int = 1000,
    ) -> UploadListing:
        """One page of unfinished uploads. All of the bucket are looked through for it."""
        self._require(bucket)
        entries: dict[tuple[bytes, str], MultipartUpload | str] = {}
        for upload in self._all_uploads(bucket):
            if not upload.key.startswith(prefix):
                continue
            at = upload.key.find(delimiter, len(prefix)) if delimiter else -1
            if at >= 0:
                folder = upload.key[: at + len(delimiter)]
                entries[folder.encode(), ""] = folder
            else:
                entries[upload.key.encode(), upload.upload_id] = upload
        # Without an upload: behind all of that key.
        start = (after_key.encode(), after_upload or "\U0010ffff") if after_key else (b"", "")
        wanted = [place for place in sorted(entries) if place > start]
        page = [entries[place] for place in wanted[: max(0, limit)]]
        last = ("", "")
        if len(wanted) > len(page):
            last = (
                (after_key, after_upload)
                if not page
                else (wanted[len(page) - 1][0].decode(), wanted[len(page) - 1][1])
            )
        return UploadListing(
            tuple(entry for entry in page if isinstance(entry, MultipartUpload)),
            tuple(entry for entry in page if isinstance(entry, str)),
            *last,
        )

    def complete_upload(
        self,
        bucket: str,
        key: str,
        upload_id: str,
        parts: Sequence[tuple[int, str]],
        *,
        condition: Condition | None = None,
        min_part_size: int = 0,
        attributes: dict[str, str] | None = None,
    ) -> ObjectInfo:
        """Make the object of these parts (number, ETag), in rising order. To say it twice does no harm.

        The endpoint took all attributes at the beginning: those that come so late are not kept.
        """
        check_part_order(parts)
        try:
            upload, endpoint_id = self._find_upload(bucket, key, upload_id)
            found = self._all_parts(upload, endpoint_id)
        except NotFound as error:
            done = self._completed(bucket, key, upload_id)
            if error.code != "no_such_upload" or done is None:
                raise
            return done
        chosen: list[Part] = []
        for number, etag in parts:
            sent = found.get(number, [])
            part = next((part for part in sent if part.etag == bare_etag(etag).lower()), None)
            if part is None:
                # Another may have completed or aborted it in this moment.
                done = self._completed(bucket, key, upload_id)
                if done is not None:
                    return done
                if self._read_upload(bucket, upload_id) is None:
                    raise no_such_upload(upload_id)
                raise wrong_part(number, was_received=bool(sent))
            chosen.append(part)
        check_part_sizes([(part.number, part.size) for part in chosen], min_part_size)
        named = [(part.number, part.etag) for part in chosen]
        info = self._finish_parts(upload, endpoint_id, named, condition)
        self._forget_upload(bucket, upload_id)
        return info

    def abort_upload(self, bucket: str, key: str, upload_id: str) -> None:
        """Discard an upload with its parts."""
        upload, endpoint_id = self._find_upload(bucket, key, upload_id)
        self._drop_parts(upload, endpoint_id)
        self._forget_upload(bucket, upload_id)

    def delete_bucket(self, name: str) -> None:
        """Remove an empty bucket, with the uploads to it that are not finished."""
        if name.startswith("."):
            raise NotAllowed(f"The bucket '{name}' belongs to the platform.", hint="It cannot be removed.")
        self._records.remove(name)
        for upload in self._all_uploads(name):
            _, endpoint_id = self._known_uploads[upload.upload_id]
            self._drop_parts(upload, endpoint_id)
            self._forget_upload(name, upload.upload_id)

    def piece_sizes(self, bucket: str, key: str, version_id: str = "") -> Sequence[int]:
        """The sizes of the parts that an object was made of, as far as the endpoint tells them."""
        info = self.info(bucket, key, version_id)
        _, dash, count = info.etag.partition("-")
        if not dash or not count.isdigit() or not 1 <= int(count) <= MAX_PARTS:
            return [info.size]
        name = self._layout.name(bucket, key)

        def size_of(number: int) -> int:
            answer = self._wire.ask("HEAD", name, {"partNumber": str(number)}, {"if-match": f'"{info.etag}"'})
            return int(answer.headers.get("content-length", "0"))

        try:
            with ThreadPoolExecutor(8, "pieces") as threads:
                sizes = list(threads.map(size_of, range(1, int(count) + 1)))
        except Refused:
            return [info.size]
        return sizes if sum(sizes) == info.size else [info.size]

    # --- our records ---

    def _record_name(self, bucket: str, upload_id: str) -> str:
        return self._layout.own(f"uploads/{bucket}/{upload_id}.json")

    def _find_upload(self, bucket: str, key: str, upload_id: str) -> tuple[MultipartUpload, str]:
        self._require(bucket)
        known = self._known_uploads.get(upload_id)
        if known is None:
            if not (upload_id.isascii() and upload_id.isalnum() and len(upload_id) <= 64):
                raise no_such_upload(upload_id)
            known = self._read_upload(bucket, upload_id)
        if known is None or (known[0].bucket, known[0].key) != (bucket, key):
            raise no_such_upload(upload_id)
        return known

    def _read_upload(self, bucket: str, upload_id: str) -> tuple[MultipartUpload, str] | None:
        try:
            answer = self._wire.ask("GET", self._record_name(bucket, upload_id))
        except Refused as refused:
            if refused.status == 404:
                return None
            raise self._explain(refused, bucket, upload_id) from refused
        values: dict[str, Any] = json.loads(answer.body)
        upload = MultipartUpload(
            bucket,
            values["key"],
            upload_id,
            values["created_at"],
            values["content_type"],
            values["metadata"],
            values["attributes"],
        )
        if len(self._known_uploads) > _KNOWN:
            self._known_uploads.clear()
        self._known_uploads[upload_id] = (upload, values["endpoint_id"])
        return self._known_uploads[upload_id]

    def _forget_upload(self, bucket: str, upload_id: str) -> None:
        self._known_uploads.pop(upload_id, None)
        try:
            self._wire.ask("DELETE", self._record_name(bucket, upload_id))
        except Refused:
            pass  # The upkeep removes records of uploads that are over.

    def _all_uploads(self, bucket: str) -> list[MultipartUpload]:
        folder, after = self._layout.own(f"uploads/{bucket}/"), ""
        found: list[MultipartUpload] = []
        while True:
            page = list_page(self._wire, folder, after=after)
            names = names_in(page)
            for name in names:
                upload_id = name[len(folder) :].removesuffix(".json")
                known = self._known_uploads.get(upload_id) or self._read_upload(bucket, upload_id)
                if known is not None:
                    found.append(known[0])
            if page.findtext("IsTruncated") != "true" or not names:
                return found
            after = names[-1]
