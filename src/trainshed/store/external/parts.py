"""The endpoint's side of uploads in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote
from xml.etree import ElementTree

from trainshed.model.errors import InvalidInput, NotFound, TrainshedError, Unavailable
from trainshed.store.external.address import Address, Credentials
from trainshed.store.external.core import ExternalCore, content_md5
from trainshed.store.external.object_facts import bare_etag, moment_of, write_facts
from trainshed.store.external.wire import Answer, Refused, parse_xml
from trainshed.store.records import Condition, MultipartUpload, ObjectInfo, Part
from trainshed.store.rules import UPLOAD_ATTRIBUTE, no_such_upload

__all__ = ["OpenParts", "PartsOperations"]


class PartsOperations(ExternalCore):
    """Begin, fill and end an upload at the endpoint."""

    def __init__(self, address: Address, credentials: Credentials | None = None) -> None:
        super().__init__(address, credentials)
        # By our id: the upload and the endpoint's id. Neither changes.
        self._known_uploads: dict[str, tuple[MultipartUpload, str]] = {}

    def _begin_parts(self, upload: MultipartUpload, *, is_appendable: bool = False) -> str:
        """Begin an upload at the endpoint; returns the endpoint's id of it."""
        # The id goes along, so that the object tells from which upload it came.
        attributes = {**upload.attributes, UPLOAD_ATTRIBUTE: upload.upload_id}
        headers = write_facts(upload.content_type, upload.metadata, attributes, is_appendable=is_appendable)
        name = self._layout.name(upload.bucket, upload.key)
        try:
            root = parse_xml(self._wire.ask("POST", name, {"uploads": ""}, headers).body)
        except Refused as refused:
            raise self._explain(refused, upload.bucket, upload.key) from refused
        return root.findtext("UploadId") or ""

    def _send_part(
        self, upload: MultipartUpload, endpoint_id: str, number: int, data: bytes | memoryview
    ) -> str:
        query = {"partNumber": str(number), "uploadId": endpoint_id}
        headers = {"content-md5": content_md5(data)}
        answer = self._on_upload(upload, "PUT", query, headers, data)
        return bare_etag(answer.headers.get("etag", ""))

    def _copy_part(
        self, upload: MultipartUpload, endpoint_id: str, number: int, source: ObjectInfo, start: int, end: int
    ) -> str:
        headers = {
            "x-amz-copy-source": self._source(source.bucket, source.key),
            "x-amz-copy-source-if-match": f'"{source.etag}"',
            "x-amz-copy-source-range": f"bytes={start}-{end - 1}",
        }
        query = {"partNumber": str(number), "uploadId": endpoint_id}
        answer = self._on_upload(upload, "PUT", query, headers)
        return bare_etag(self._check_result(answer, "CopyPartResult").headers["etag"])

    def _source(self, bucket: str, key: str) -> str:
        return quote(f"/{self.address.bucket}/{self._layout.name(bucket, key)}", safe="/-_.~")

    def _on_upload(
        self,
        upload: MultipartUpload,
        method: str,
        query: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        body: bytes | memoryview = b"",
    ) -> Answer:
        try:
            return self._wire.ask(method, self._layout.name(upload.bucket, upload.key), query, headers, body)
        except Refused as refused:
            if refused.code == "NoSuchUpload" or (refused.status == 404 and refused.code != "NoSuchKey"):
                raise no_such_upload(upload.upload_id) from None
            if refused.status == 412:
                raise Unavailable(
                    "The object was changed while it was copied.", hint="Try again.", code="object_changed"
                ) from None
            raise self._explain(refused, upload.bucket, upload.key) from refused

    def _parts_page(
        self, upload: MultipartUpload, endpoint_id: str, after: int, limit: int
    ) -> tuple[list[Part], bool]:
        query = {"uploadId": endpoint_id, "max-parts": str(min(limit, 1000))}
        if after:
            query["part-number-marker"] = str(after)
        root = parse_xml(self._on_upload(upload, "GET", query).body)
        parts = [
            Part(
                int(item.findtext("PartNumber") or 0),
                bare_etag(item.findtext("ETag") or "").lower(),
                int(item.findtext("Size") or 0),
                moment_of(item.findtext("LastModified") or ""),
            )
            for item in root.iter("Part")
        ]
        return parts, root.findtext("IsTruncated") == "true"

    def _all_parts(self, upload: MultipartUpload, endpoint_id: str) -> dict[int, list[Part]]:
        """All parts by their numbers. Some endpoints list a part that was sent again beside the one before."""
        found: dict[int, list[Part]] = {}
        after, has_more = 0, True
        while has_more:
            page, has_more = self._parts_page(upload, endpoint_id, after, 1000)
            for part in page:
                found.setdefault(part.number, []).append(part)
            if not page:
                break
            after = page[-1].number
        return found

    def _finish_parts(
        self,
        upload: MultipartUpload,
        endpoint_id: str,
        parts: Sequence[tuple[int, str]],
        condition: Condition | None,
    ) -> ObjectInfo:
        root = ElementTree.Element("CompleteMultipartUpload")
        for number, etag in parts:
            part = ElementTree.SubElement(root, "Part")
            ElementTree.SubElement(part, "PartNumber").text = str(number)
            ElementTree.SubElement(part, "ETag").text = f'"{etag}"'
        body = ElementTree.tostring(root)
        name = self._layout.name(upload.bucket, upload.key)

        def write(guard: Mapping[str, str]) -> Answer:
            answer = self._wire.ask("POST", name, {"uploadId": endpoint_id}, guard, body)
            return self._check_result(answer, "CompleteMultipartUploadResult")

        try:
            self._conditionally(upload.bucket, upload.key, condition, write)
        except TrainshedError as error:
            # Perhaps it was done and only the answer was lost.
            done = self._completed(upload.bucket, upload.key, upload.upload_id)
            if done is None:
                cause = error.__cause__
                code = cause.code if isinstance(cause, Refused) else ""
                if code == "NoSuchUpload":
                    raise no_such_upload(upload.upload_id) from None
                if code in ("InvalidPart", "InvalidPartOrder"):
                    raise InvalidInput(
                        "The external store does not take these parts.",
                        hint="Send them again; parts without bytes are none.",
                        code="invalid_part",
                    ) from None
                if code == "EntityTooSmall":
                    raise InvalidInput(
                        "A part is smaller than the external store takes; all but the last must have 5 MiB.",
                        hint="Send larger parts.",
                        code="entity_too_small",
                    ) from None
                raise
            return done
        return self.info(upload.bucket, upload.key)

    def _drop_parts(self, upload: MultipartUpload, endpoint_id: str) -> None:
        try:
            self._on_upload(upload, "DELETE", {"uploadId": endpoint_id})
        except NotFound as error:
            if error.code != "no_such_upload":
                raise

    def _completed(self, bucket: str, key: str, upload_id: str) -> ObjectInfo | None:
        """The object, if it is the one that this upload became."""
        try:
            info = self.info(bucket, key)
        except TrainshedError:
            return None
        return info if info.attributes.get(UPLOAD_ATTRIBUTE) == upload_id else None


class OpenParts:
    """An upload in parts of which nobody else knows: the bytes of one large object that arrive in order."""

    def __init__(
        self,
        store: PartsOperations,
        upload: MultipartUpload,
        condition: Condition | None,
        *,
        is_appendable: bool = False,
    ) -> None:
        self._store = store
        self._upload = upload
        self._condition = condition
        self._endpoint_id = store._begin_parts(upload, is_appendable=is_appendable)

    def send(self, number: int, data: bytes) -> tuple[int, str]:
        """Send a part; tells its number and ETag."""
        return number, self._store._send_part(self._upload, self._endpoint_id, number, data)

    def copy(self, number: int, source: ObjectInfo, start: int, end: int) -> tuple[int, str]:
        """Make a part from bytes that the endpoint has already."""
        etag = self._store._copy_part(self._upload, self._endpoint_id, number, source, start, end)
        return number, etag

    def complete(self, parts: Sequence[tuple[int, str]]) -> ObjectInfo:
        """Make the object of them."""
        return self._store._finish_parts(self._upload, self._endpoint_id, parts, self._condition)

    def abort(self) -> None:
        """Discard them."""
        self._store._drop_parts(self._upload, self._endpoint_id)
