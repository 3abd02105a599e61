"""The one interface to object storage that the rest of the platform uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

__all__ = ["Bucket", "Listing", "ObjectInfo", "ObjectStore"]


@dataclass(frozen=True)
class Bucket:
    """A bucket, and the workspace whose members may use it."""

    name: str
    workspace_id: str
    created_at: float


@dataclass(frozen=True)
class ObjectInfo:
    """An object without its bytes. A key that ends in `/` with no bytes is a folder's marker."""

    bucket: str
    key: str
    size: int
    etag: str
    modified_at: float
    content_type: str = "application/octet-stream"
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Listing:
    """One page of a listing in exact key order (UTF-8 bytes)."""

    objects: tuple[ObjectInfo, ...]
    # With a delimiter: what lies below, rolled up to the first delimiter behind the prefix.
    folders: tuple[str, ...] = ()
    # The key to continue after, or empty when this was the last page.
    next_after: str = ""


class ObjectStore(Protocol):
    """Buckets and objects. Every method raises a `TrainshedError`; a write that returns is durable."""

    def create_bucket(self, name: str, workspace_id: str) -> Bucket: ...

    def delete_bucket(self, name: str) -> None: ...

    def bucket(self, name: str) -> Bucket: ...

    def buckets(self, workspace_id: str | None = None) -> list[Bucket]: ...

    def put(
        self,
        bucket: str,
        key: str,
        data: bytes | BinaryIO | Iterable[bytes],
        *,
        content_type: str = "application/octet-stream",
        metadata: dict[str, str] | None = None,
        expected_md5: str = "",
        expected_sha256: str = "",
    ) -> ObjectInfo: ...

    def info(self, bucket: str, key: str) -> ObjectInfo: ...

    def open(
        self, bucket: str, key: str, start: int = 0, length: int | None = None
    ) -> AbstractContextManager[BinaryIO]: ...

    def list(
        self, bucket: str, prefix: str = "", *, delimiter: str = "", after: str = "", limit: int = 1000
    ) -> Listing: ...

    def walk(self, bucket: str, prefix: str = "") -> Iterator[ObjectInfo]: ...

    def delete(self, bucket: str, key: str) -> bool: ...

    def delete_prefix(self, bucket: str, prefix: str) -> int: ...

    def copy_prefix(self, bucket: str, prefix: str, to_bucket: str, to_prefix: str) -> int:
        """Copy all objects below a prefix in one step: readers see all of the copy or nothing of it."""
        ...
