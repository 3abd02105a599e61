"""The one interface to object storage that the rest of the platform uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import BinaryIO, Protocol

__all__ = ["FOLDER_TYPE", "Bucket", "Listing", "ObjectInfo", "ObjectStore", "Upload"]

# The content type of a folder's marker.
FOLDER_TYPE = "application/x-directory"


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


class Upload(Protocol):
    """An object on its way in. Nobody sees it before `commit`; leaving the `with` block without it discards it."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes."""
        ...

    def commit(self, *, expected_md5: str = "", expected_sha256: str = "") -> ObjectInfo:
        """Make the object visible and durable, in place of the one that had its key."""
        ...

    def abort(self) -> None:
        """Discard what was written. Does nothing after `commit`."""
        ...

    def __enter__(self) -> Upload: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class ObjectStore(Protocol):
    """Buckets and objects. Every method raises a `TrainshedError`; a write that returns is durable.

    Buckets whose names start with `.` belong to the platform itself and come into being at their first use.
    """

    def create_bucket(self, name: str, workspace_id: str) -> Bucket: ...

    def ensure_bucket(self, name: str, workspace_id: str = "") -> Bucket:
        """The bucket, made if it is not there yet. The platform's own buckets may be named here."""
        ...

    def delete_bucket(self, name: str) -> None:
        """Remove an empty bucket."""
        ...

    def bucket(self, name: str) -> Bucket: ...

    def buckets(self, workspace_id: str | None = None) -> list[Bucket]:
        """All buckets of a workspace (or of all), without the platform's own."""
        ...

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

    def put_folder(self, bucket: str, key: str) -> ObjectInfo:
        """Make a folder: an empty object whose key ends in `/`."""
        ...

    def upload(
        self,
        bucket: str,
        key: str,
        *,
        content_type: str = "application/octet-stream",
        metadata: dict[str, str] | None = None,
        with_sha256: bool = False,
    ) -> Upload:
        """Begin an object whose bytes arrive piece by piece."""
        ...

    def info(self, bucket: str, key: str) -> ObjectInfo: ...

    def open(
        self, bucket: str, key: str, start: int = 0, length: int | None = None
    ) -> AbstractContextManager[BinaryIO]: ...

    def open_object(self, bucket: str, key: str) -> tuple[ObjectInfo, BinaryIO]:
        """An object and its bytes, both of the same moment. The caller closes the file."""
        ...

    def fetch_to_file(self, bucket: str, key: str, target: int) -> ObjectInfo:
        """Copy an object's bytes into an open file descriptor by the fastest way there is."""
        ...

    def list(
        self, bucket: str, prefix: str = "", *, delimiter: str = "", after: str = "", limit: int = 1000
    ) -> Listing: ...

    def walk(self, bucket: str, prefix: str = "") -> Iterator[ObjectInfo]: ...

    def delete(self, bucket: str, key: str) -> bool: ...

    def delete_prefix(self, bucket: str, prefix: str) -> int: ...

    def copy(self, bucket: str, key: str, to_bucket: str, to_key: str) -> ObjectInfo:
        """Copy one object, replacing the one that had the new key."""
        ...

    def copy_prefix(self, bucket: str, prefix: str, to_bucket: str, to_prefix: str) -> int:
        """Copy all objects below a prefix in one step: readers see all of the copy or nothing of it."""
        ...

    def close(self) -> None:
        """Give back connections and files. The store may not be used afterwards."""
        ...
