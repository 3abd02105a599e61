"""One tenant never reaches another's buckets, also not through a name that changed hands."""

from __future__ import annotations

from trainshed.model.errors import NotFound
from trainshed.store.object_store import ObjectStore

__all__ = ["require_own_bucket"]


def require_own_bucket(store: ObjectStore, bucket: str, workspace_id: str) -> None:
    """Refuse a bucket that is not the workspace's own at this moment.

    The submit checked it, but a bucket can be deleted while its job waits, and another workspace may have
    taken the name since. For the job it is then simply gone.
    """
    if store.bucket(bucket).workspace_id != workspace_id:
        raise NotFound(
            f"There is no bucket '{bucket}'.",
            hint="`trainshed obs ls` lists the buckets; `trainshed obs mb` makes one.",
            code="no_such_bucket",
        )
