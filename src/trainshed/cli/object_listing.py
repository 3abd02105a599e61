"""What `trainshed obs ls` shows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from trainshed.model.errors import NotFound
from trainshed.model.names import ObsUrl
from trainshed.model.size import format_size

if TYPE_CHECKING:
    from trainshed.client.objects import ObjectClient, ObjectEntry

__all__ = ["list_buckets", "list_folder", "print_entries"]


def list_buckets(client: ObjectClient) -> Iterator[dict[str, Any]]:
    """The buckets of the workspace."""
    for bucket in client.buckets():
        yield {"type": "bucket", "url": f"obs://{bucket.name}/", "created_at": bucket.created_at}


def list_folder(client: ObjectClient, url: ObsUrl, recursive: bool) -> Iterator[dict[str, Any]]:
    """What lies in a folder, an object that was named, or everything below."""
    if recursive:
        yield from _some(url, (_object(url.bucket, entry) for entry in client.walk(url.bucket, url.key)))
        return
    if not url.is_folder:
        folder = url.as_folder()
        is_object = any(entry.key == url.key for entry in client.list(url.bucket, url.key, limit=1).objects)
        if not is_object and client.list(url.bucket, folder.key, limit=1).objects:
            url = folder
    yield from _some(url, _level(client, url))


def _level(client: ObjectClient, url: ObsUrl) -> Iterator[dict[str, Any]]:
    after = ""
    while True:
        page = client.list(url.bucket, url.key, delimiter="/", after=after)
        folders = [{"type": "folder", "url": f"obs://{url.bucket}/{folder}"} for folder in page.folders]
        objects = [_object(url.bucket, entry) for entry in page.objects]
        yield from sorted(folders + objects, key=lambda entry: str(entry["url"]).encode())
        after = page.next_after
        if not after:
            return


def _some(url: ObsUrl, entries: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """All entries; none at all is an error, unless a whole bucket is empty."""
    is_empty = True
    for entry in entries:
        is_empty = False
        yield entry
    if is_empty and url.key:
        raise NotFound(
            f"There is nothing at {url}.",
            hint=f"See what is there: trainshed obs ls obs://{url.bucket}/",
            code="no_such_key",
        )


def _object(bucket: str, entry: ObjectEntry) -> dict[str, Any]:
    return {
        "type": "object",
        "url": f"obs://{bucket}/{entry.key}",
        "size": entry.size,
        "etag": entry.etag,
        "modified_at": entry.modified_at,
        "content_type": entry.content_type,
        "metadata": entry.metadata,
    }


def print_entries(entries: Iterable[dict[str, Any]], as_json: bool) -> None:
    """Print entries one per line, or all as one JSON array."""
    if as_json:
        click.echo(json.dumps(list(entries), ensure_ascii=False, indent=2))
        return
    for entry in entries:
        time = entry.get("modified_at") or entry.get("created_at")
        shown_time = datetime.fromtimestamp(time).strftime("%Y-%m-%d %H:%M:%S") if time else ""
        size = format_size(entry["size"]) if "size" in entry else ""
        # A key may hold anything; what could steer the terminal is shown, not sent.
        url = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in entry["url"])
        click.echo(f"{shown_time:19}  {size:>9}  {url}")
