"""The one interface to object storage that the rest of the platform uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import BinaryIO, Protocol

from trainshed.store.records import (
    FOLDER_TYPE,
    Bucket,
    Condition,
    Listing,
    MultipartUpload,
    ObjectInfo,
    Part,
    PartListing,
    Removal,
    UploadListing,
    Usage,
    Version,
    VersionListing,
)

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
    "Usage",
    "Version",
    "VersionListing",
]


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

    def remove(
        self, bucket: str, key: str, version_id: str = "", *, condition: Condition | None = None
    ) -> Removal:
        """Remove an object (where versions are kept: hide it behind a marker), or one version for good.

        A condition is about the present object, whichever version is meant.
        """
        ...

    def delete_prefix(self, bucket: str, prefix: str) -> int: ...

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
        """Copy one object, replacing the one that had the new key. What is given replaces what it had."""
        ...

    def rename(self, bucket: str, key: str, to_key: str) -> ObjectInfo:
        """Give an object another key, in one step. The new key must be free."""
        ...

    def rename_prefix(self, bucket: str, prefix: str, to_prefix: str) -> int:
        """Give all objects below a prefix another one, in one step. Nothing may lie there."""
        ...

    def append(
        self,
        bucket: str,
        key: str,
        position: int,
        *,
        content_type: str = "application/octet-stream",
        metadata: dict[str, str] | None = None,
        attributes: dict[str, str] | None = None,
    ) -> Upload:
        """Begin bytes that go behind those of an appendable object; its size must be `position` at `commit`.

        At position 0 the object is made. The size of what `commit` returns is the next position.
        """
        ...

    def set_attributes(
        self, bucket: str, key: str, changes: Mapping[str, str | None], *, version_id: str = ""
    ) -> ObjectInfo:
        """Change attributes of an object; those given as None are removed. Its time stays as it was."""
        ...

    def piece_sizes(self, bucket: str, key: str, version_id: str = "") -> Sequence[int]:
        """The sizes of the parts that an object was made of."""
        ...

    # --- settings of a bucket, and versions ---

    def bucket_document(self, bucket: str, name: str) -> str:
        """A text kept with the bucket (policy, cors, lifecycle, acl, tagging...), or nothing."""
        ...

    def set_bucket_document(self, bucket: str, name: str, document: str) -> None:
        """Keep a text with the bucket; an empty one removes it."""
        ...

    def set_versioning(self, bucket: str, versioning: str) -> None:
        """`Enabled` or `Suspended`."""
        ...

    def list_versions(
        self,
        bucket: str,
        prefix: str = "",
        *,
        delimiter: str = "",
        after_key: str = "",
        after_version: str = "",
        limit: int = 1000,
    ) -> VersionListing: ...

    def copy_prefix(self, bucket: str, prefix: str, to_bucket: str, to_prefix: str) -> int:
        """Copy all objects below a prefix in one step: readers see all of the copy or nothing of it."""
        ...

    # --- how much there is, and how long it stays ---

    def usage(self, workspace_id: str) -> Usage:
        """What a workspace keeps, and how much it may."""
        ...

    def set_quota(self, workspace_id: str, size: int | None, objects: int | None) -> None:
        """Limit a workspace; an empty name limits all that have no limit of their own.

        0 is no limit; None takes the workspace's own limit away.
        """
        ...

    def expire_objects(self, now: float | None = None) -> int:
        """Remove what the lifecycle rules of buckets (the document `lifecycle`) say is over."""
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
        version_id: str = "",
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
        attributes: dict[str, str] | None = None,
    ) -> ObjectInfo:
        """Make the object of these parts (number, ETag), in rising order. To say it twice does no harm.

        Parts before the last that are shorter than `min_part_size` are refused. `attributes` are kept with the
        object beside those of the upload, where the store can add some so late.
        """
        ...

    def abort_upload(self, bucket: str, key: str, upload_id: str) -> None:
        """Discard an upload with its parts."""
        ...

    def close(self) -> None:
        """Give back connections and files. The store may not be used afterwards."""
        ...
