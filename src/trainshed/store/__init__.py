"""Object storage: the embedded store, the external one, and the one interface that all of the platform uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlsplit

from trainshed.model.errors import InvalidInput

if TYPE_CHECKING:
    from trainshed.store.object_store import ObjectStore
    from trainshed.store.outage import Patience

__all__ = ["open_store"]


def open_store(url: str, patience: Patience | None = None) -> ObjectStore:
    """Open the object store at a URL: `file:///folder` is the embedded store in that folder.

    `s3://bucket/prefix?endpoint=...&region=...&keys=...` is an external one; `keys` names the file with its keys.
    `http://host:port?token=...` is the one of a platform elsewhere, as its runners use it.
    With `patience`, what is asked of an external store that is away waits for it.
    """
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and path.startswith("/"):
        from trainshed.store.embedded.store import EmbeddedStore

        return EmbeddedStore(Path(path))
    if parts.scheme == "s3":
        from trainshed.store.external.store import open_external_store

        return open_external_store(url, patience)
    if parts.scheme in ("http", "https"):
        from trainshed.store.remote.store import open_remote_store

        # It offers what a runner uses: objects and folders, not the settings and the upkeep of buckets.
        return cast("ObjectStore", open_remote_store(url, patience))
    raise InvalidInput(
        f"'{url[:120]}' is not the URL of an object store.",
        hint="Write it as file:///absolute/folder or s3://bucket/prefix.",
    )
