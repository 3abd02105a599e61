"""Removing what the lifecycle rules of buckets say is over."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator
from functools import partial

from trainshed.model.errors import NotFound, TrainshedError
from trainshed.store.embedded import bucket_rows, index, versions
from trainshed.store.embedded.edits import EditOperations
from trainshed.store.embedded.garbage import release
from trainshed.store.embedded.multipart import MultipartOperations
from trainshed.store.lifecycle import LifecycleRule, has_tags, is_due, parse_lifecycle
from trainshed.store.object_store import ObjectInfo, Version
from trainshed.store.rules import LIFECYCLE_DOCUMENT

__all__ = ["ExpiryOperations"]


class ExpiryOperations(EditOperations, MultipartOperations):
    """Lifecycle rules at work."""

    def expire_objects(self, now: float | None = None) -> int:
        """Remove the objects, versions and unfinished uploads whose time is over; tells how many."""
        now = time.time() if now is None else now
        return sum(self._expire_bucket(bucket, rules, now) for bucket, rules in self._rules())

    def _rules(self) -> Iterator[tuple[str, list[LifecycleRule]]]:
        with self._transactions.read() as connection:
            found = connection.execute(
                "SELECT buckets.name, document FROM documents JOIN buckets ON buckets.id = bucket_id"
                " WHERE documents.name = ?",
                (LIFECYCLE_DOCUMENT,),
            ).fetchall()
        for bucket, document in found:
            try:
                rules = [rule for rule in parse_lifecycle(document) if rule.is_enabled]
            except TrainshedError:
                continue  # Nothing is removed by a rule that is not understood.
            yield bucket, rules

    def _expire_bucket(self, bucket: str, rules: list[LifecycleRule], now: float) -> int:
        removed = 0
        try:
            for rule in rules:
                removed += self._expire_present(bucket, rule, now)
                removed += self._expire_older(bucket, rule, now)
                removed += self._expire_uploads(bucket, rule, now)
        except NotFound:
            pass  # The bucket was removed meanwhile.
        return removed

    def _expire_present(self, bucket: str, rule: LifecycleRule, now: float) -> int:
        if rule.days is None and (rule.date is None or rule.date > now):
            return 0
        removed, after = 0, ""
        while True:
            page = self.list(bucket, rule.prefix, after=after)
            due = [
                info
                for info in page.objects
                if (rule.days is None or is_due(info.modified_at, rule.days, now)) and has_tags(info, rule)
            ]
            removed += self._drop_unchanged(bucket, due, now) if due else 0
            after = page.next_after
            if not after:
                return removed

    def _drop_unchanged(self, bucket: str, due: list[ObjectInfo], now: float) -> int:
        def work(connection: sqlite3.Connection) -> tuple[int, list[str]]:
            removed, free = 0, list[str]()
            for info in due:
                try:
                    present = index.find_object(connection, bucket, info.key).info
                except NotFound:
                    continue
                # Whoever wrote it again since the page was read wants to keep it.
                if (present.modified_at, present.etag) == (info.modified_at, info.etag):
                    free += index.delete_object(connection, bucket, info.key, now)[1]
                    removed += 1
            return removed, free

        removed, free = self._write_freeing(work)
        self._remove(free)
        return removed

    def _expire_older(self, bucket: str, rule: LifecycleRule, now: float) -> int:
        if rule.noncurrent_days is None and not rule.drop_markers:
            return 0
        due = list(_due_versions(self._versions(bucket, rule.prefix), rule, now))
        for start in range(0, len(due), 1000):
            free = self._write_freeing(
                partial(_remove_versions, bucket=bucket, due=due[start : start + 1000])
            )
            self._remove(free)
        return len(due)

    def _versions(self, bucket: str, prefix: str) -> Iterator[Version]:
        key = version = ""
        while True:
            page = self.list_versions(bucket, prefix, after_key=key, after_version=version)
            yield from page.versions
            key, version = page.next_after_key, page.next_after_version
            if not key:
                return

    def _expire_uploads(self, bucket: str, rule: LifecycleRule, now: float) -> int:
        if rule.abort_days is None:
            return 0
        removed, key, upload_id = 0, "", ""
        while True:
            page = self.list_uploads(bucket, rule.prefix, after_key=key, after_upload=upload_id)
            for upload in page.uploads:
                if is_due(upload.created_at, rule.abort_days, now):
                    try:
                        self.abort_upload(bucket, upload.key, upload.upload_id)
                        removed += 1
                    except NotFound:
                        pass  # Completed in this moment.
            key, upload_id = page.next_after_key, page.next_after_upload
            if not key:
                return removed


def _due_versions(history: Iterable[Version], rule: LifecycleRule, now: float) -> Iterator[tuple[str, str]]:
    """Key and id of the versions whose time is over, and of markers that hide nothing."""
    newer: Version | None = None
    lone: Version | None = None
    for one in history:
        if lone is not None and lone.info.key != one.info.key:
            yield lone.info.key, lone.info.version_id
        lone = one if one.is_latest and one.is_delete_marker and rule.drop_markers else None
        # A version is an older one since the moment in which the next was written.
        since = newer.info.modified_at if newer is not None and newer.info.key == one.info.key else None
        newer = one
        if (
            since is not None
            and rule.noncurrent_days is not None
            and is_due(since, rule.noncurrent_days, now)
            and has_tags(one.info, rule)
        ):
            yield one.info.key, one.info.version_id
    if lone is not None:
        yield lone.info.key, lone.info.version_id


def _remove_versions(connection: sqlite3.Connection, bucket: str, due: list[tuple[str, str]]) -> list[str]:
    number, _ = bucket_rows.find_bucket(connection, bucket)
    gone = []
    for key, version_id in due:
        gone += versions.remove_version(connection, number, key.encode(), version_id or versions.NULL)[1]
    return release(connection, gone)
