"""What the object store tells of buckets, objects, their versions and their parts."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = [
    "FOLDER_TYPE",
    "Bucket",
    "Condition",
    "Listing",
    "MultipartUpload",
    "ObjectInfo",
    "Part",
    "PartListing",
    "Removal",
    "UploadListing",
    "Usage",
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


@dataclass(frozen=True)
class Usage:
    """What a workspace keeps in the store, and how much it may; 0 is no limit."""

    bytes: int
    objects: int
    max_bytes: int = 0
    max_objects: int = 0
