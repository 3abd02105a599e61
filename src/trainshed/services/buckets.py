"""Buckets of a workspace. Whoever reads or writes objects asks here first."""

from __future__ import annotations

from trainshed.model.errors import Conflict, NotFound
from trainshed.model.names import check_bucket_name
from trainshed.services.access import may, require
from trainshed.services.identity import Caller
from trainshed.services.platform import Platform
from trainshed.store.object_store import Bucket

__all__ = ["create_bucket", "delete_bucket", "list_buckets", "readable_bucket", "writable_bucket"]


def list_buckets(platform: Platform, caller: Caller) -> list[Bucket]:
    """The buckets of the caller's workspace."""
    require(caller, "bucket.read")
    return [
        bucket for bucket in platform.store.buckets(caller.workspace_id) if not bucket.name.startswith(".")
    ]


def create_bucket(platform: Platform, caller: Caller, name: str) -> Bucket:
    """Make a bucket in the caller's workspace. Names are unique on the whole platform."""
    require(caller, "bucket.create")
    check_bucket_name(name)
    try:
        return platform.store.create_bucket(name, caller.workspace_id)
    except Conflict:
        own = platform.store.bucket(name).workspace_id == caller.workspace_id
        raise Conflict(
            f"There is already a bucket named '{name}'{' in this workspace' if own else ''}.",
            hint="Use it." if own else "Choose another name.",
            code="bucket_exists" if own else "bucket_name_taken",
            where="bucket",
        ) from None


def readable_bucket(platform: Platform, caller: Caller, name: str, key: str = "") -> Bucket:
    """The bucket, if the caller may read its objects; of the platform's own, those below `key`."""
    return _bucket(platform, caller, name, "bucket.read", key)


def writable_bucket(platform: Platform, caller: Caller, name: str, key: str = "") -> Bucket:
    """The bucket, if the caller may write and delete its objects; of the platform's own, those below `key`."""
    return _bucket(platform, caller, name, "bucket.write", key)


def delete_bucket(platform: Platform, caller: Caller, name: str) -> None:
    """Remove an empty bucket."""
    platform.store.delete_bucket(_bucket(platform, caller, name, "bucket.delete").name)


def _bucket(platform: Platform, caller: Caller, name: str, action: str, key: str = "") -> Bucket:
    # Buckets that begin with a dot are the platform's own; no caller can name them, but for a job's runner.
    if name.startswith("."):
        if not _is_runners_own(caller, name, key, action):
            raise _missing(name)
        return platform.store.ensure_bucket(name)
    try:
        bucket = platform.store.bucket(name)
    except NotFound:
        raise _missing(name) from None
    if bucket.workspace_id != caller.workspace_id and not may(caller, action, bucket):
        raise _missing(name)
    require(caller, action, bucket)
    return bucket


def _is_runners_own(caller: Caller, name: str, key: str, action: str) -> bool:
    """Whether a key of one of the platform's own buckets belongs to the job whose runner asks."""
    places = caller.places
    if places is None:
        return False
    if name == places.archive_bucket and key.startswith(places.archive_prefix):
        return action in ("bucket.read", "bucket.write")
    is_code = name == places.code_bucket and bool(places.code_prefix) and key.startswith(places.code_prefix)
    return is_code and action == "bucket.read"


def _missing(name: str) -> NotFound:
    return NotFound(
        f"There is no bucket '{name[:80]}'.",
        hint="`trainshed obs ls` lists the buckets; `trainshed obs mb` makes one.",
        code="no_such_bucket",
        where="bucket",
    )
