"""What the lifecycle rules of buckets say is over, uploads that were given up, and how much there is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from urllib.parse import unquote_plus

from trainshed.model.errors import NotAllowed, NotFound, TrainshedError
from trainshed.store.external.address import Address, Credentials
from trainshed.store.external.append import AppendOperations
from trainshed.store.external.core import not_offered
from trainshed.store.external.multipart import MultipartOperations
from trainshed.store.external.object_facts import moment_of
from trainshed.store.external.wire import Refused, parse_xml
from trainshed.store.lifecycle import LifecycleRule, has_tags, is_due, parse_lifecycle
from trainshed.store.records import MultipartUpload, Usage
from trainshed.store.rules import LIFECYCLE_DOCUMENT

__all__ = ["UpkeepOperations"]

# An upload that got no part for this long was given up by its sender.
_ABANDONED_SECONDS = 7 * 86400.0
_COUNT_FOR_SECONDS = 60.0


class UpkeepOperations(AppendOperations, MultipartOperations):
    """Lifecycle rules at work, and counting."""

    def __init__(self, address: Address, credentials: Credentials | None = None) -> None:
        super().__init__(address, credentials)
        self._counted: dict[str, tuple[float, Usage]] = {}

    def expire_objects(self, now: float | None = None) -> int:
        """Remove the objects and unfinished uploads whose time is over; tells how many."""
        now = time.time() if now is None else now
        removed = 0
        for record in self._records.all():
            document = record.documents.get(LIFECYCLE_DOCUMENT, "")
            try:
                rules = parse_lifecycle(document) if document else []
            except TrainshedError:
                continue  # Nothing is removed by a rule that is not understood.
            try:
                for rule in rules:
                    if rule.is_enabled:
                        removed += self._expire_present(record.name, rule, now)
                        removed += self._expire_uploads(record.name, rule, now)
            except NotFound:
                pass  # The bucket was removed meanwhile.
        return removed

    def _expire_present(self, bucket: str, rule: LifecycleRule, now: float) -> int:
        if rule.days is None and (rule.date is None or rule.date > now):
            return 0
        removed = 0
        for listed in self.walk(bucket, rule.prefix):
            if rule.days is not None and not is_due(listed.modified_at, rule.days, now):
                continue
            try:
                info = self.info(bucket, listed.key)
            except NotFound:
                continue
            # Whoever wrote it again since the page was read wants to keep it.
            is_same = info.etag == listed.etag and abs(info.modified_at - listed.modified_at) < 1.0
            if is_same and has_tags(info, rule):
                self._delete(bucket, listed.key)
                removed += 1
        return removed

    def _expire_uploads(self, bucket: str, rule: LifecycleRule, now: float) -> int:
        if rule.abort_days is None:
            return 0
        removed = 0
        for upload in self._all_uploads(bucket):
            if upload.key.startswith(rule.prefix) and is_due(upload.created_at, rule.abort_days, now):
                try:
                    self.abort_upload(bucket, upload.key, upload.upload_id)
                    removed += 1
                except NotFound:
                    pass  # Completed in this moment.
        return removed

    def collect_garbage(self, now: float | None = None) -> int:
        """Discard uploads in parts that got none for a week, and memories of buckets; tells how many uploads."""
        before = (time.time() if now is None else now) - _ABANDONED_SECONDS
        removed = 0
        for name, endpoint_id, begun in self._endpoint_uploads():
            if begun >= before:
                continue
            upload = MultipartUpload("", name, endpoint_id, begun)
            try:
                root = parse_xml(
                    self._wire.ask("GET", name, {"uploadId": endpoint_id, "max-parts": "1000"}).body
                )
                last = max((moment_of(item.text or "") for item in root.iter("LastModified")), default=begun)
                if last < before:
                    self._wire.ask("DELETE", name, {"uploadId": upload.upload_id})
                    removed += 1
            except Refused:
                continue  # Completed or aborted in this moment.
        for record in self._records.all():
            for upload in self._all_uploads(record.name):
                if upload.created_at < before:
                    self._drop_if_over(upload)
        self._records.drop_memories()
        return removed

    def _drop_if_over(self, upload: MultipartUpload) -> None:
        """Remove the record of an upload that the endpoint does not know any more."""
        try:
            self.list_parts(upload.bucket, upload.key, upload.upload_id, limit=1)
        except NotFound as error:
            if error.code == "no_such_upload":
                self._forget_upload(upload.bucket, upload.upload_id)

    def _endpoint_uploads(self) -> Iterator[tuple[str, str, float]]:
        """All uploads below our prefix that the endpoint knows: name, its id, and when it was begun."""
        query = {"uploads": "", "prefix": self.address.prefix, "encoding-type": "url"}
        while True:
            try:
                page = parse_xml(self._wire.ask("GET", "", query).body)
            except Refused as refused:
                raise self._explain(refused, "", "") from refused
            for item in page.iter("Upload"):
                yield (
                    unquote_plus(item.findtext("Key") or ""),
                    item.findtext("UploadId") or "",
                    moment_of(item.findtext("Initiated") or ""),
                )
            marker = unquote_plus(page.findtext("NextKeyMarker") or "")
            if page.findtext("IsTruncated") != "true" or not marker:
                return
            query |= {"key-marker": marker, "upload-id-marker": page.findtext("NextUploadIdMarker") or ""}

    # --- how much there is ---

    def usage(self, workspace_id: str) -> Usage:
        """What a workspace keeps. All its objects are listed for that, at most once a minute."""
        known = self._counted.get(workspace_id)
        if known is not None and time.monotonic() - known[0] < _COUNT_FOR_SECONDS:
            return known[1]
        size = objects = 0
        for bucket in self.buckets(workspace_id):
            for info in self.walk(bucket.name):
                size += info.size
                objects += 1
        usage = Usage(size, objects)
        self._counted[workspace_id] = (time.monotonic(), usage)
        return usage

    def set_quota(self, workspace_id: str, size: int | None, objects: int | None) -> None:
        """Only "no limit" can be set: the endpoint does not count per workspace."""
        if size or objects:
            raise _no_quotas()


def _no_quotas() -> NotAllowed:
    return not_offered(
        "knows no quotas of workspaces",
        "Set quota_gb and quota_objects to 0; limit the bucket at the endpoint.",
    )
