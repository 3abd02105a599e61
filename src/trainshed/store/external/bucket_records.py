"""Buckets: small records beside the objects, because all of ours lie in one bucket of the endpoint."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote_plus

from trainshed.model.errors import Conflict, NotFound, Unavailable
from trainshed.model.names import check_bucket_name
from trainshed.store.external.layout import Layout, list_page, names_in
from trainshed.store.external.object_facts import bare_etag
from trainshed.store.external.wire import Refused, Wire
from trainshed.store.records import Bucket

__all__ = ["BucketRecord", "BucketRecords", "is_internal", "no_such_bucket"]

_INTERNAL = re.compile(r"\.[a-z0-9-]{1,62}")
# How long a process believes what it knows of a bucket.
_FRESH_SECONDS = 3.0
# For how long no other workspace gets the name of a removed bucket: by then no process believes in the old one,
# and clocks may differ.
_HELD_SECONDS = 60.0
_TRIES = 10


def is_internal(name: str) -> bool:
    """Whether a bucket belongs to the platform itself; such buckets have no record, they are always there."""
    return _INTERNAL.fullmatch(name) is not None


def no_such_bucket(name: str) -> NotFound:
    """The error for a bucket that is not there."""
    return NotFound(
        f"There is no bucket '{name}'.",
        hint=f"Make it with: trainshed obs mb {name}",
        code="no_such_bucket",
    )


@dataclass(frozen=True)
class BucketRecord:
    """A bucket with its settings, or the memory of one that was removed."""

    name: str
    workspace_id: str
    created_at: float
    documents: dict[str, str] = field(default_factory=dict)
    removed_at: float = 0.0

    @property
    def bucket(self) -> Bucket:
        """The bucket as the rest of the platform knows it."""
        return Bucket(self.name, self.workspace_id, self.created_at)


class BucketRecords:
    """The records of all buckets."""

    def __init__(self, wire: Wire, layout: Layout) -> None:
        self._wire = wire
        self._layout = layout
        # By name: when it was read, the record's ETag, the record.
        self._known: dict[str, tuple[float, str, BucketRecord]] = {}
        self._lock = threading.Lock()

    def forget_parent(self) -> None:
        """After a fork: nobody holds the lock in this process."""
        self._lock = threading.Lock()

    def find(self, name: str, *, is_fresh: bool = False) -> BucketRecord:
        """A bucket's record. What is known for less than three seconds is believed, unless it must be fresh."""
        if is_internal(name):
            record = self._read(name)[1] if is_fresh else None
            return record or BucketRecord(name, "", 0.0)
        known = self._known.get(name)
        if known is not None and not is_fresh and time.monotonic() - known[0] < _FRESH_SECONDS:
            record = known[2]
        else:
            record = self._read(name)[1]
        if record is None or record.removed_at:
            raise no_such_bucket(name)
        return record

    def all(self) -> list[BucketRecord]:
        """The records of all buckets that are there. Costs one request for those that did not change."""
        found: list[BucketRecord] = []
        folder, after = self._layout.own("buckets/"), ""
        while True:
            page = list_page(self._wire, folder, after=after)
            names = [
                (unquote_plus(item.findtext("Key") or ""), bare_etag(item.findtext("ETag") or ""))
                for item in page.iter("Contents")
            ]
            for full, etag in names:
                name = full[len(folder) :].removesuffix(".json")
                known = self._known.get(name)
                record = known[2] if known is not None and known[1] == etag else self._read(name)[1]
                if record is not None and not record.removed_at and not is_internal(name):
                    found.append(record)
            if page.findtext("IsTruncated") != "true" or not names:
                return sorted(found, key=lambda record: record.name)
            after = names[-1][0]

    def create(self, name: str, workspace_id: str, *, may_exist: bool) -> BucketRecord:
        """Make a bucket. Its name must be free, and nothing may lie where its objects would."""
        check_bucket_name(name)
        for _ in range(_TRIES):
            etag, record = self._read(name)
            if record is not None and not record.removed_at:
                if may_exist:
                    return record
                raise Conflict(
                    f"There is a bucket '{name}' already.",
                    hint="Choose another name: bucket names are shared by the whole platform.",
                    code="bucket_exists",
                )
            if record is None and self.has_objects(name):
                raise Conflict(
                    f"At the place of the bucket '{name}' the external store has objects that nobody here owns.",
                    hint="Choose another name, or ask the administrator of the external store.",
                    code="bucket_exists",
                )
            if record is not None:
                if (
                    record.workspace_id != workspace_id
                    and abs(time.time() - record.removed_at) < _HELD_SECONDS
                ):
                    raise Conflict(
                        f"A bucket '{name}' was removed a moment ago.",
                        hint="Try again in a minute.",
                        code="bucket_exists",
                    )
                # What somebody wrote while it was being removed was never anybody else's to see.
                self._layout.clear(self._layout.folder(name))
            made = BucketRecord(name, workspace_id, time.time())
            if self._write(made, etag):
                return made
        raise _busy(name)

    def remove(self, name: str) -> None:
        """Remove an empty bucket."""
        for _ in range(_TRIES):
            etag, record = self._read(name)
            if record is None or record.removed_at:
                raise no_such_bucket(name)
            if self.has_objects(name):
                raise _not_empty(name)
            removed = replace(record, documents={}, removed_at=time.time())
            if not self._write(removed, etag):
                continue
            # Somebody may have written to it since we looked.
            if self.has_objects(name):
                self._write(record, self._read(name)[0])
                raise _not_empty(name)
            return
        raise _busy(name)

    def change(self, name: str, change: Callable[[dict[str, str]], None]) -> None:
        """Change the documents of a bucket."""
        for _ in range(_TRIES):
            etag, record = self._read(name)
            if record is None and is_internal(name):
                record = BucketRecord(name, "", time.time())
            if record is None or record.removed_at:
                raise no_such_bucket(name)
            documents = dict(record.documents)
            change(documents)
            if self._write(replace(record, documents=documents), etag):
                return
        raise _busy(name)

    def drop_memories(self) -> None:
        """Forget buckets that were removed long ago."""
        folder, after = self._layout.own("buckets/"), ""
        while True:
            page = list_page(self._wire, folder, after=after)
            names = names_in(page)
            for full in names:
                record = self._read(full[len(folder) :].removesuffix(".json"))[1]
                if record is not None and record.removed_at and time.time() - record.removed_at > 3600:
                    self._layout.clear(self._layout.folder(record.name))
                    self._wire.ask("DELETE", full)
            if page.findtext("IsTruncated") != "true" or not names:
                return
            after = names[-1]

    def has_objects(self, name: str) -> bool:
        """Whether anything lies below a bucket's name."""
        return self._layout.has_objects(self._layout.folder(name))

    def _read(self, name: str) -> tuple[str, BucketRecord | None]:
        """A record as it is now, with the ETag that a change must name."""
        try:
            answer = self._wire.ask("GET", self._name(name))
        except Refused as refused:
            if refused.status != 404:
                raise _unreadable(name) from refused
            self._known.pop(name, None)
            return "", None
        try:
            values: dict[str, Any] = json.loads(answer.body)
            record = BucketRecord(
                name,
                str(values["workspace_id"]),
                float(values["created_at"]),
                dict(values.get("documents", {})),
                float(values.get("removed_at", 0.0)),
            )
        except (ValueError, KeyError, TypeError):
            raise _unreadable(name) from None
        etag = answer.headers.get("etag", "")
        self._known[name] = (time.monotonic(), bare_etag(etag), record)
        return etag, record

    def _write(self, record: BucketRecord, etag: str) -> bool:
        """Write a record in the place of the one that was read; tells whether that was still there."""
        headers = {"content-type": "application/json"}
        values: dict[str, Any] = {"workspace_id": record.workspace_id, "created_at": record.created_at}
        if record.documents:
            values["documents"] = record.documents
        if record.removed_at:
            values["removed_at"] = record.removed_at
        if self._layout.terms.has_conditions:
            headers |= {"if-match": etag} if etag else {"if-none-match": "*"}
        try:
            self._wire.ask("PUT", self._name(record.name), headers=headers, body=json.dumps(values).encode())
        except Refused as refused:
            self._known.pop(record.name, None)
            if refused.status in (404, 409, 412):
                # Perhaps it was us, and the answer was lost.
                return refused.was_repeated and self._read(record.name)[1] == record
            raise _unreadable(record.name) from refused
        self._known.pop(record.name, None)
        return True

    def _name(self, name: str) -> str:
        return self._layout.own(f"buckets/{name}.json")


def _not_empty(name: str) -> Conflict:
    return Conflict(
        f"The bucket '{name}' is not empty.",
        hint="Remove its objects first: trainshed obs rm -r.",
        code="bucket_not_empty",
    )


def _busy(name: str) -> Unavailable:
    return Unavailable(
        f"The bucket '{name}' is being changed by others.", hint="Try again.", code="store_busy"
    )


def _unreadable(name: str) -> Unavailable:
    return Unavailable(
        f"The record of the bucket '{name}' cannot be used.",
        hint="Ask an administrator to look at the external store.",
        code="store_failed",
    )
