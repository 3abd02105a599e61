"""What all operations of the external store stand on: the endpoint, the layout, and how an object is written."""

from __future__ import annotations

import base64
import hashlib
import os
import weakref
from collections.abc import Callable, Mapping

from trainshed.model.errors import Conflict, InvalidInput, NotAllowed, NotFound, TrainshedError, Unavailable
from trainshed.model.names import check_key
from trainshed.store.external.address import Address, Credentials
from trainshed.store.external.bucket_records import BucketRecords, is_internal, no_such_bucket
from trainshed.store.external.layout import Layout
from trainshed.store.external.object_facts import bare_etag, moment_of, read_facts
from trainshed.store.external.wire import Answer, Refused, Wire, parse_xml
from trainshed.store.records import Bucket, Condition, ObjectInfo
from trainshed.store.rules import check_condition, check_document, no_such_key, no_such_version

__all__ = ["ExternalCore", "content_md5", "not_offered"]

_TRIES = 8
_live: weakref.WeakSet[ExternalCore] = weakref.WeakSet()


def _begin_anew_after_fork() -> None:
    for store in list(_live):
        store._forget_parent()


os.register_at_fork(after_in_child=_begin_anew_after_fork)


class ExternalCore:
    """One place at an endpoint, opened. Nothing is asked of the endpoint before the first use."""

    def __init__(self, address: Address, credentials: Credentials | None = None) -> None:
        self.address = address
        self._wire = Wire(address, credentials)
        self._layout = Layout(self._wire)
        self._records = BucketRecords(self._wire, self._layout)
        _live.add(self)

    def _forget_parent(self) -> None:
        self._layout.forget_parent()
        self._records.forget_parent()

    def close(self) -> None:
        """Close the connections."""
        self._wire.close()

    def claim(self, platform_id: str) -> None:
        """Make this place a platform's own; one that belongs to another is refused."""
        name = self._layout.own("platform")
        for _ in range(2):
            try:
                owner = self._wire.ask("GET", name).body.decode("utf-8", "replace")
            except Refused as refused:
                if refused.status != 404:
                    raise self._explain(refused, "", name) from refused
            else:
                if owner == platform_id:
                    return
                raise Conflict(
                    f"{self.address.place} belongs to another platform.",
                    hint="Use another prefix; a platform that was lost comes back with `trainshed restore`.",
                    code="other_platform",
                )
            guard = {"if-none-match": "*"} if self._layout.terms.has_conditions else {}
            try:
                self._wire.ask("PUT", name, headers=guard, body=platform_id.encode())
                return
            except Refused as refused:
                if refused.status not in (409, 412):
                    raise self._explain(refused, "", name) from refused

    # --- buckets ---

    def create_bucket(self, name: str, workspace_id: str) -> Bucket:
        """Make a bucket for a workspace."""
        return self._records.create(name, workspace_id, may_exist=False).bucket

    def ensure_bucket(self, name: str, workspace_id: str = "") -> Bucket:
        """The bucket, made if it is not there yet. The platform's own buckets are always there."""
        if is_internal(name):
            return Bucket(name, "", 0.0)
        return self._records.create(name, workspace_id, may_exist=True).bucket

    def bucket(self, name: str) -> Bucket:
        """What is known of a bucket."""
        return self._records.find(name).bucket

    def buckets(self, workspace_id: str | None = None) -> list[Bucket]:
        """All buckets of a workspace (or of all), without the platform's own."""
        return [
            record.bucket for record in self._records.all() if workspace_id in (None, record.workspace_id)
        ]

    def bucket_document(self, bucket: str, name: str) -> str:
        """A text kept with the bucket, or nothing."""
        return self._records.find(bucket, is_fresh=is_internal(bucket)).documents.get(name, "")

    def set_bucket_document(self, bucket: str, name: str, document: str) -> None:
        """Keep a text with the bucket; an empty one removes it."""
        check_document(document)

        def change(documents: dict[str, str]) -> None:
            documents.pop(name, None)
            if document:
                documents[name] = document

        self._records.change(bucket, change)

    def set_versioning(self, bucket: str, versioning: str) -> None:
        """Versions are not kept here: this is refused."""
        if versioning not in ("Enabled", "Suspended"):
            raise InvalidInput(
                f"'{versioning[:40]}' is no state of versioning.", hint="Use Enabled or Suspended."
            )
        self._records.find(bucket)
        raise not_offered("keeps no versions of objects", "Copy what must stay to another key.")

    # --- objects ---

    def info(self, bucket: str, key: str, version_id: str = "") -> ObjectInfo:
        """What is known of an object."""
        check_key(key)
        self._check_version(key, version_id)
        try:
            answer = self._wire.ask("HEAD", self._layout.name(bucket, key))
        except Refused as refused:
            raise self._explain(refused, bucket, key) from refused
        return read_facts(bucket, key, answer.headers)

    @staticmethod
    def _check_version(key: str, version_id: str) -> None:
        if version_id not in ("", "null"):
            raise no_such_version(key, version_id)

    def _require(self, *buckets: str) -> None:
        for name in buckets:
            self._records.find(name)

    def _explain(self, refused: Refused, bucket: str, key: str) -> TrainshedError:
        """The error that a user sees."""
        if refused.status == 404:
            try:
                self._records.find(bucket, is_fresh=not is_internal(bucket))
            except NotFound:
                return no_such_bucket(bucket)
            return no_such_key(bucket, key)
        if refused.status == 501:
            return not_offered(f"cannot do this ({refused.code})", "Ask an administrator.")
        return Unavailable(
            f"The external store refused a request: {refused}.",
            hint="Try again; if it stays so, ask an administrator to look at the endpoint.",
            code="store_refused",
        )

    def _conditionally(
        self,
        bucket: str,
        key: str,
        condition: Condition | None,
        write: Callable[[Mapping[str, str]], Answer],
        etag: str = "",
    ) -> Answer:
        """Make a write, if its condition holds at the very moment.

        The condition is judged on the object as it is; then the endpoint is asked to write only if the object
        is still that one. `etag` is what the object will have, if that is known: it tells our own write, whose
        answer was lost, from another's.
        """
        if condition is None or not (condition.if_match or condition.if_none_match):
            try:
                return write({})
            except Refused as refused:
                raise self._explain(refused, bucket, key) from refused
        if not self._layout.terms.has_conditions:
            raise not_offered(
                "does not honour conditions of writes", "Write without If-Match and If-None-Match."
            )
        for _ in range(_TRIES):
            try:
                present: str | None = self.info(bucket, key).etag
            except NotFound as error:
                if error.code != "no_such_key":
                    raise
                present = None
            check_condition(key, condition, present)
            guard = {"if-none-match": "*"} if present is None else {"if-match": f'"{present}"'}
            try:
                return write(guard)
            except Refused as refused:
                if refused.status not in (404, 409, 412):
                    raise self._explain(refused, bucket, key) from refused
                if refused.was_repeated and etag and self._has_etag(bucket, key, etag):
                    return Answer(200, {"etag": etag})
        raise Unavailable(f"'{key}' is being changed by others.", hint="Try again.", code="store_busy")

    def _has_etag(self, bucket: str, key: str, etag: str) -> bool:
        try:
            return self.info(bucket, key).etag == etag
        except NotFound:
            return False

    def _put_bytes(
        self,
        info: ObjectInfo,
        headers: Mapping[str, str],
        data: bytes | bytearray | memoryview,
        condition: Condition | None,
        md5: str = "",
    ) -> ObjectInfo:
        """Write a whole object by one request; the endpoint compares the bytes with their MD5."""
        name = self._layout.name(info.bucket, info.key)
        md5 = md5 or hashlib.md5(data, usedforsecurity=False).hexdigest()

        def write(guard: Mapping[str, str]) -> Answer:
            sent = {**headers, **guard, "content-md5": base64.b64encode(bytes.fromhex(md5)).decode()}
            return self._wire.ask("PUT", name, headers=sent, body=data)

        answer = self._conditionally(info.bucket, info.key, condition, write, md5)
        return ObjectInfo(
            info.bucket,
            info.key,
            len(data),
            bare_etag(answer.headers.get("etag", "")) or md5,
            moment_of(answer.headers.get("date", "")),
            info.content_type,
            info.metadata,
            info.attributes,
            is_appendable=info.is_appendable,
        )

    @staticmethod
    def _check_result(answer: Answer, element: str) -> Answer:
        """Some operations say 200 first and learn only then that they fail."""
        root = parse_xml(answer.body)
        if root.tag != element:
            raise Refused(500, root.findtext("Code") or "", root.findtext("Message") or "")
        etag = root.findtext("ETag") or answer.headers.get("etag", "")
        modified = root.findtext("LastModified") or answer.headers.get("date", "")
        return Answer(answer.status, {**answer.headers, "etag": etag, "last-modified": modified}, answer.body)


def content_md5(data: bytes | bytearray | memoryview) -> str:
    """The header by which the endpoint checks what arrives."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def not_offered(what: str, hint: str) -> NotAllowed:
    """The error for what an external store cannot do. Nothing was changed."""
    return NotAllowed(f"The external store of this platform {what}.", hint=hint, code="not_implemented")
