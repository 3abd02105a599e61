"""Whether what is about to come would pass a quota: told before its bytes travel, not after."""

from __future__ import annotations

from trainshed.model.errors import NotFound, TooLarge
from trainshed.store.embedded.store import EmbeddedStore
from trainshed.store.object_store import Bucket, ObjectStore

__all__ = ["require_room"]

# What is smaller is read in a moment and refused when it is stored.
_WORTH_ASKING = 1 << 18


def require_room(
    store: ObjectStore, bucket: Bucket, key: str, size: int | None, part: tuple[str, int] | None = None
) -> None:
    """Refuse an object of that announced size, or a part (upload id, number), that the workspace's quota has no
    room for. What it replaces makes room. (Storing it checks again: others write at the same time.)"""
    if (
        size is None
        or size <= _WORTH_ASKING
        or not bucket.workspace_id
        or not isinstance(store, EmbeddedStore)
    ):
        return
    usage = store.usage(bucket.workspace_id)
    if not usage.max_bytes or usage.bytes + size <= usage.max_bytes:
        return
    replaced = _replaced_part(store, bucket, key, part) if part else _replaced_object(store, bucket, key)
    if usage.bytes + size - replaced <= usage.max_bytes:
        return
    raise TooLarge(
        f"The workspace may keep {usage.max_bytes} bytes and would have {usage.bytes + size - replaced};"
        " nothing was stored.",
        hint="Remove what is no longer needed (trainshed obs rm -r), or ask an administrator for a larger quota.",
        code="quota_exceeded",
        where="quota: bytes",
    )


def _replaced_object(store: ObjectStore, bucket: Bucket, key: str) -> int:
    if bucket.versioning:
        return 0
    try:
        return store.info(bucket.name, key).size
    except NotFound:
        return 0


def _replaced_part(store: ObjectStore, bucket: Bucket, key: str, part: tuple[str, int]) -> int:
    try:
        page = store.list_parts(bucket.name, key, part[0], after=part[1] - 1, limit=1)
    except NotFound:
        return 0
    return sum(found.size for found in page.parts if found.number == part[1])
