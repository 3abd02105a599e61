"""Lists of objects, in both versions of S3."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.visit import Visit, owner_of
from trainshed.api.obs.xml_codec import format_time, url_encode
from trainshed.store.object_store import Bucket, Listing

__all__ = ["list_objects", "list_objects_v2", "make_token", "read_encoding", "read_number", "read_token"]

_MOST_KEYS = 1000


async def list_objects(visit: Visit) -> None:
    """The first version: goes on after a `marker`."""
    query = visit.query
    encode = read_encoding(visit)
    limit = read_number(visit, "max-keys", _MOST_KEYS)
    bucket, page = await visit.do(lambda: _list(visit, query.get("marker", ""), limit))
    content: list[tuple[str, Any]] = [
        ("Name", visit.bucket),
        ("Prefix", encode(query.get("prefix", ""))),
        ("Marker", encode(query.get("marker", ""))),
        # Without a delimiter, clients go on after the last key they got.
        ("NextMarker", encode(page.next_after) if page.next_after and query.get("delimiter") else None),
        ("MaxKeys", limit),
        ("Delimiter", encode(query["delimiter"]) if query.get("delimiter") else None),
        ("EncodingType", query.get("encoding-type")),
        ("IsTruncated", bool(page.next_after)),
    ]
    await visit.answer_xml("ListBucketResult", content + _entries(page, bucket, encode, with_owner=True))


async def list_objects_v2(visit: Visit) -> None:
    """The second version: goes on with a token, or begins after a key."""
    query = visit.query
    encode = read_encoding(visit)
    limit = read_number(visit, "max-keys", _MOST_KEYS)
    token = query.get("continuation-token")
    after = read_token(token) if token is not None else query.get("start-after", "")
    bucket, page = await visit.do(lambda: _list(visit, after, limit))
    content: list[tuple[str, Any]] = [
        ("Name", visit.bucket),
        ("Prefix", encode(query.get("prefix", ""))),
        ("ContinuationToken", token),
        ("NextContinuationToken", make_token(page.next_after) if page.next_after else None),
        ("StartAfter", encode(query["start-after"]) if query.get("start-after") else None),
        ("KeyCount", len(page.objects) + len(page.folders)),
        ("MaxKeys", limit),
        ("Delimiter", encode(query["delimiter"]) if query.get("delimiter") else None),
        ("EncodingType", query.get("encoding-type")),
        ("IsTruncated", bool(page.next_after)),
    ]
    with_owner = query.get("fetch-owner", "").lower() == "true"
    await visit.answer_xml(
        "ListBucketResult", content + _entries(page, bucket, encode, with_owner=with_owner)
    )


def _list(visit: Visit, after: str, limit: int) -> tuple[Bucket, Listing]:
    bucket = visit.readable()
    if limit == 0:
        return bucket, Listing(())
    query = visit.query
    page = visit.store.list(
        visit.bucket,
        query.get("prefix", ""),
        delimiter=query.get("delimiter", ""),
        after=after,
        limit=limit,
    )
    return bucket, page


def _entries(
    page: Listing, bucket: Bucket, encode: Callable[[str], str], *, with_owner: bool
) -> list[tuple[str, Any]]:
    owner = owner_of(bucket.workspace_id) if with_owner else None
    entries: list[tuple[str, Any]] = [
        (
            "Contents",
            [
                ("Key", encode(info.key)),
                ("LastModified", format_time(info.modified_at)),
                ("ETag", f'"{info.etag}"'),
                ("Size", info.size),
                ("Owner", owner),
                ("StorageClass", info.attributes.get("storage-class", "STANDARD")),
            ],
        )
        for info in page.objects
    ]
    return entries + [("CommonPrefixes", [("Prefix", encode(folder))]) for folder in page.folders]


def read_encoding(visit: Visit) -> Callable[[str], str]:
    """How keys are written in the answer."""
    kind = visit.query.get("encoding-type", "")
    if kind not in ("", "url"):
        raise S3Error("InvalidArgument", "Invalid Encoding Method specified in Request")
    return url_encode if kind else str


def read_number(visit: Visit, name: str, most: int, default: int | None = None) -> int:
    """A number in the query, cut to what one page holds."""
    text = visit.query.get(name, "")
    if not text:
        return most if default is None else default
    if not (text.isascii() and text.isdigit() and len(text) < 11) or int(text) > 2**31 - 1:
        raise S3Error(
            "InvalidArgument",
            f"Provided {name} not an integer or within integer range",
            ArgumentName=name,
            ArgumentValue=text[:40],
        )
    return min(int(text), most)


def make_token(after: str) -> str:
    """A token with which a list goes on after a name."""
    return base64.urlsafe_b64encode(after.encode()).decode()


def read_token(token: str) -> str:
    """The name in a token."""
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise S3Error("InvalidArgument", "The continuation token provided is incorrect") from None
