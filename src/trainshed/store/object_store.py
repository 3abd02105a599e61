"""The one interface to object storage that the rest of the platform uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import BinaryIO, Protocol

__all__ = [
    "FOLDER_TYPE",
    "Bucket",
    "Condition",
    "Listing",
    "MultipartUpload",
    "ObjectInfo",
    "ObjectStore",
    "Part",
    "PartListing",
    "PartUpload",
    "Removal",
    "Upload",
    "UploadListing",
    "Version",
    "VersionListing",
]

# The content type of a folder's marker.
FOLDER_TYPE = "application/x-directory"


@dataclass(frozen=True)
class Bucket:
    """A bucket, and the workspace whose members may use it."""

    name: str
    workspace_id: str
    created_at: float
    # `Enabled` keeps what is overwritten or removed, `Suspended` only what was kept before; empty: never had any.
    versioning: str = ""


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
    # What a protocol keeps with the object beside the user's metadata: cache-control, acl, tagging, checksums...
    attributes: dict[str, str] = field(default_factory=dict)
    # Empty in a bucket that has never had versions.
    version_id: str = ""
    is_appendable: bool = False


@dataclass(frozen=True)
class Condition:
    """What must hold at the moment of a write; judged in the transaction that makes it.

    `if_match` is the ETag that the present object must have (`*`: any object must be there); `if_none_match`
    the one that it must not have (`*`: no object may be there).
    """

    if_match: str = ""
    if_none_match: str = ""


@dataclass(frozen=True)
class MultipartUpload:
    """An object that is sent in numbered parts, in any order, and becomes visible when it is completed."""

    bucket: str
    key: str
    upload_id: str
    created_at: float
    content_type: str = "application/octet-stream"
    metadata: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """A part that was received."""

    number: int
    etag: str
    size: int
    modified_at: float
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PartListing:
    """One page of an upload's parts in order."""

    upload: MultipartUpload
    parts: tuple[Part, ...]
    # The number to continue after, or 0 when this was the last page.
    next_after: int = 0


@dataclass(frozen=True)
class UploadListing:
    """One page of unfinished uploads, by key and then by the time they were begun."""

    uploads: tuple[MultipartUpload, ...]
    folders: tuple[str, ...] = ()
    # Key (or folder) and upload to continue after; both empty when this was the last page.
    next_after_key: str = ""
    next_after_upload: str = ""


@dataclass(frozen=True)
class Removal:
    """What removing an object did."""

    existed: bool
    # The version that is gone, or that of the marker that hides the object from now on.
    version_id: str = ""
    is_delete_marker: bool = False


@dataclass(frozen=True)
class Version:
    """One version of an object, or a marker that says it was removed."""

    info: ObjectInfo
    is_latest: bool
    is_delete_marker: bool = False


@dataclass(frozen=True)
class VersionListing:
    """One page of versions, by key and then from the newest to the oldest."""

    versions: tuple[Version, ...]
    folders: tuple[str, ...] = ()
    # Key (or folder) and version to continue after; the key is empty when this was the last page.
    next_after_key: str = ""
    next_after_version: str = ""


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

    def commit(
        self,
        *,
        expected_md5: str = "",
        expected_sha256: str = "",
        attributes: dict[str, str] | None = None,
    ) -> ObjectInfo:
        """Make the object visible and durable, in place of the one that had its key.

        `attributes` are those that are only known at the end, such as a checksum that trails the body.
        """
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


class PartUpload(Protocol):
    """A part on its way in; used as `Upload` is."""

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def commit(
        self,
        *,
        expected_md5: str = "",
        expected_sha256: str = "",
        attributes: dict[str, str] | None = None,
    ) -> Part:
        """Make the part durable, in place of the one that had its number."""
        ...

    def abort(self) -> None: ...

    def __enter__(self) -> PartUpload: ...

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
        attributes: dict[str, str] | None = None,
        condition: Condition | None = None,
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
        attributes: dict[str, str] | None = None,
        condition: Condition | None = None,
        with_sha256: bool = False,
    ) -> Upload:
        """Begin an object whose bytes arrive piece by piece."""
        ...

    def info(self, bucket: str, key: str, version_id: str = "") -> ObjectInfo:
        """What is known of an object, or of one version of it (`null`: the one from before versions were kept)."""
        ...

    def open(
        self, bucket: str, key: str, start: int = 0, length: int | None = None
    ) -> AbstractContextManager[BinaryIO]: ...

    def open_object(self, bucket: str, key: str, version_id: str = "") -> tuple[ObjectInfo, BinaryIO]:
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

    def remove(self, bucket: str, key: str, version_id: str = "") -> Removal:
        """Remove an object (where versions are kept: hide it behind a marker), or one version for good."""
        ...

    def delete_prefix(self, bucket: str, prefix: str) -> int: ...

    def copy(
        self,
        bucket: str,
        key: str,
        to_bucket: str,
        to_key: str,
        *,
        content_type: str | None = None,
        metadata: dict[str, str] | None = None,
        attributes: dict[str, str] | None = None,
    ) -> ObjectInfo:
        """Copy one object, replacing the one that had the new key. What is given replaces what it had."""
        ...

    def copy_prefix(self, bucket: str, prefix: str, to_bucket: str, to_prefix: str) -> int:
        """Copy all objects below a prefix in one step: readers see all of the copy or nothing of it."""
        ...

    # --- multipart uploads ---

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
        ...

    def find_upload(self, bucket: str, key: str, upload_id: str) -> MultipartUpload:
        """What is known of an unfinished upload."""
        ...

    def upload_part(
        self,
        bucket: str,
        key: str,
        upload_id: str,
        number: int,
        *,
        size: int | None = None,
        with_sha256: bool = False,
    ) -> PartUpload:
        """Begin a part (1 to 10,000). Parts whose `size` is told beforehand are never moved again."""
        ...

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
        ...

    def copy_part(
        self,
        bucket: str,
        key: str,
        upload_id: str,
        number: int,
        from_bucket: str,
        from_key: str,
        *,
        start: int = 0,
        length: int | None = None,
    ) -> Part:
        """Make a part from an object, or from a range of it."""
        ...

    def list_parts(
        self, bucket: str, key: str, upload_id: str, *, after: int = 0, limit: int = 1000
    ) -> PartListing: ...

    def list_uploads(
        self,
        bucket: str,
        prefix: str = "",
        *,
        delimiter: str = "",
        after_key: str = "",
        after_upload: str = "",
        limit: int = 1000,
    ) -> UploadListing: ...

    def complete_upload(
        self,
        bucket: str,
        key: str,
        upload_id: str,
        parts: Sequence[tuple[int, str]],
        *,
        condition: Condition | None = None,
        min_part_size: int = 0,
    ) -> ObjectInfo:
        """Make the object of these parts (number, ETag), in rising order. To say it twice does no harm.

        Parts before the last that are shorter than `min_part_size` are refused.
        """
        ...

    def abort_upload(self, bucket: str, key: str, upload_id: str) -> None:
        """Discard an upload with its parts."""
        ...

    def close(self) -> None:
        """Give back connections and files. The store may not be used afterwards."""
        ...
