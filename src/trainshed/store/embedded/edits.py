"""What moves no bytes: lists, copies, new names, attributes, versions, and the settings of buckets."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainshed.model.errors import InvalidInput
from trainshed.model.names import check_key
from trainshed.store.embedded import bucket_rows, index, versions
from trainshed.store.embedded.core import StoreCore
from trainshed.store.embedded.garbage import release
from trainshed.store.embedded.version_listing import list_versions
from trainshed.store.object_store import Condition, Listing, ObjectInfo, Removal, VersionListing
from trainshed.store.rules import check_document, check_rename_target, checked_metadata, taken

__all__ = ["EditOperations"]

_MAX_ATTRIBUTES = 65536


class EditOperations(StoreCore):
    """List, copy, rename, describe and version objects; settings of buckets."""

    def copy(
        self,
        bucket: str,
        key: str,
        to_bucket: str,
        to_key: str,
        *,
        version_id: str = "",
        content_type: str | None = None,
        metadata: dict[str, str] | None = None,
        attributes: dict[str, str] | None = None,
        condition: Condition | None = None,
    ) -> ObjectInfo:
        """Copy one object, replacing the one that had the new key. No bytes move."""
        check_key(to_key)
        self._ensure_internal(to_bucket)
        about = None if metadata is None else checked_metadata(metadata)

        def work(connection: sqlite3.Connection) -> tuple[ObjectInfo, list[str]]:
            row = index.find_object(connection, bucket, key, version_id)
            info = replace(
                row.info,
                bucket=to_bucket,
                key=to_key,
                modified_at=time.time(),
                content_type=row.info.content_type if content_type is None else content_type,
                metadata=row.info.metadata if about is None else about,
                attributes=row.info.attributes if attributes is None else dict(attributes),
                version_id="",
                # Only one row may go on writing to a blob: a copy is an object like any other.
                is_appendable=False,
            )
            return index.put_object(connection, replace(row, info=info), condition)

        info, free = self._write(work)
        self._remove(free)
        return info

    def rename(self, bucket: str, key: str, to_key: str) -> ObjectInfo:
        """Give an object another key, in one step. The new key must be free."""
        check_key(to_key)
        self._ensure_internal(bucket)

        def work(connection: sqlite3.Connection) -> tuple[ObjectInfo, list[str]]:
            row = index.find_object(connection, bucket, key)
            if index.has_objects(connection, bucket, to_key.encode(), to_key.encode() + b"\0"):
                raise taken(to_key)
            info, free = index.put_object(connection, replace(row, info=replace(row.info, key=to_key)))
            return info, free + index.delete_object(connection, bucket, key, time.time())[1]

        info, free = self._write(work)
        self._remove(free)
        return info

    def rename_prefix(self, bucket: str, prefix: str, to_prefix: str) -> int:
        """Give all objects below a prefix another one, in one step. Nothing may lie there."""
        for part in (prefix, to_prefix):
            check_key(part)
        check_rename_target(prefix, to_prefix)
        self._ensure_internal(bucket)

        def work(connection: sqlite3.Connection) -> tuple[int, list[str]]:
            low = to_prefix.encode()
            if index.has_objects(connection, bucket, low, index.successor(low)):
                raise taken(to_prefix)
            return index.rename_prefix(connection, bucket, prefix, to_prefix, time.time())

        count, free = self._write(work)
        self._remove(free)
        return count

    def set_attributes(
        self, bucket: str, key: str, changes: Mapping[str, str | None], *, version_id: str = ""
    ) -> ObjectInfo:
        """Change attributes of an object; those given as None are removed. Its time stays as it was."""

        def work(connection: sqlite3.Connection) -> ObjectInfo:
            info = index.find_object(connection, bucket, key, version_id).info
            merged = {**info.attributes, **changes}
            info = replace(info, attributes={name: text for name, text in merged.items() if text is not None})
            text = index.format_mapping(info.attributes)
            if len(text) > _MAX_ATTRIBUTES:
                raise InvalidInput("That is too much to keep with an object.", code="too_many_attributes")
            number, _ = bucket_rows.find_bucket(connection, bucket)
            for table in ("objects", "versions"):
                connection.execute(
                    f"UPDATE {table} SET attributes = ? WHERE bucket_id = ? AND key = ? AND version_id = ?",
                    (text, number, key.encode(), info.version_id),
                )
            return info

        check_key(key)
        return self._write(work)

    def piece_sizes(self, bucket: str, key: str, version_id: str = "") -> Sequence[int]:
        """The sizes of the parts that an object was made of."""

        def work(connection: sqlite3.Connection) -> list[int]:
            row = index.find_object(connection, bucket, key, version_id)
            found = connection.execute(
                "SELECT size FROM pieces WHERE blob = ? ORDER BY number", (row.blob,)
            ).fetchall()
            return [size for (size,) in found] or [row.info.size]

        return self._read(bucket, work)

    def remove(
        self, bucket: str, key: str, version_id: str = "", *, condition: Condition | None = None
    ) -> Removal:
        """Remove an object (where versions are kept: hide it behind a marker), or one version for good."""
        self._ensure_internal(bucket)

        def work(connection: sqlite3.Connection) -> tuple[Removal, list[str]]:
            if condition is not None:
                index.check_present(connection, bucket, key, condition)
            if not version_id:
                return index.delete_object(connection, bucket, key, time.time())
            number, _ = bucket_rows.find_bucket(connection, bucket)
            removal, gone = versions.remove_version(connection, number, key.encode(), version_id)
            return removal, release(connection, gone)

        removal, free = self._write_freeing(work)
        self._remove(free)
        return removal

    def list(
        self, bucket: str, prefix: str = "", *, delimiter: str = "", after: str = "", limit: int = 1000
    ) -> Listing:
        """One page of keys in exact byte order."""
        return self._read(bucket, lambda c: index.list_page(c, bucket, prefix, delimiter, after, limit))

    def list_versions(
        self,
        bucket: str,
        prefix: str = "",
        *,
        delimiter: str = "",
        after_key: str = "",
        after_version: str = "",
        limit: int = 1000,
    ) -> VersionListing:
        """One page of versions, by key and then from the newest to the oldest."""
        after = (after_key, after_version)
        return self._read(bucket, lambda c: list_versions(c, bucket, prefix, delimiter, after, limit))

    def set_versioning(self, bucket: str, versioning: str) -> None:
        """Keep what is overwritten or removed from now on (`Enabled`), or no longer (`Suspended`)."""
        if versioning not in ("Enabled", "Suspended"):
            raise InvalidInput(
                f"'{versioning[:40]}' is no state of versioning.", hint="Use Enabled or Suspended."
            )
        self._write(lambda c: bucket_rows.set_versioning(c, bucket, versioning))

    def bucket_document(self, bucket: str, name: str) -> str:
        """A text kept with the bucket, or nothing."""
        return self._read(bucket, lambda c: bucket_rows.read_document(c, bucket, name))

    def set_bucket_document(self, bucket: str, name: str, document: str) -> None:
        """Keep a text with the bucket; an empty one removes it."""
        check_document(document)
        self._write(lambda c: bucket_rows.write_document(c, bucket, name, document))
