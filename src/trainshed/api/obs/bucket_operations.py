"""Buckets: list, create, describe, remove, and where they are."""

from __future__ import annotations

from typing import Any

from trainshed.api.obs.acl import read_acl_header
from trainshed.api.obs.body import receive_document
from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.listing import make_token, read_number, read_token
from trainshed.api.obs.visit import REGION, Visit, owner_of
from trainshed.api.obs.xml_codec import format_time, parse_xml
from trainshed.services import buckets
from trainshed.store.object_store import Bucket

__all__ = ["create_bucket", "delete_bucket", "get_location", "head_bucket", "list_buckets"]

_MOST_BUCKETS = 10_000


async def list_buckets(visit: Visit) -> None:
    """The buckets of the caller's workspace: all, or a page of those that begin alike."""
    query = visit.query
    limit = read_number(visit, "max-buckets", _MOST_BUCKETS)
    if limit == 0:
        raise S3Error("InvalidArgument", "Argument max-buckets must be an integer between 1 and 10000")
    after = read_token(query["continuation-token"]) if query.get("continuation-token") else ""

    def work() -> tuple[str, list[Bucket]]:
        return visit.caller.workspace_id, buckets.list_buckets(visit.platform, visit.caller)

    owner, found = await visit.do(work)
    # There is one region, and this is it.
    found = [] if query.get("bucket-region", REGION) != REGION else found
    found = [bucket for bucket in found if bucket.name.startswith(query.get("prefix", ""))]
    found = sorted((bucket for bucket in found if bucket.name > after), key=lambda bucket: bucket.name)
    token = make_token(found[limit - 1].name) if len(found) > limit else None
    found = found[:limit]
    entries: list[tuple[str, Any]] = []
    for bucket in found:
        entry = [("Name", bucket.name), ("CreationDate", format_time(bucket.created_at))]
        entry += [("Location", REGION), ("BucketType", "OBJECT")] if visit.is_obs else []
        entries.append(("Bucket", entry))
    content: list[tuple[str, Any]] = [
        ("Owner", owner_of(owner)),
        ("Buckets", entries),
        ("ContinuationToken", token),
        ("Prefix", query.get("prefix") or None),
    ]
    await visit.answer_xml("ListAllMyBucketsResult", content)


async def create_bucket(visit: Visit) -> None:
    """Make a bucket. Wherever the client wants it, it is here."""
    body = await receive_document(visit)
    if body.strip():
        parse_xml(body, "CreateBucketConfiguration")
    acl = read_acl_header(visit)
    if visit.option("bucket-object-lock-enabled").lower() == "true":
        raise S3Error("NotImplemented", "Objects cannot be locked here.")

    def work() -> None:
        buckets.create_bucket(visit.platform, visit.caller, visit.bucket)
        if acl and acl != "private":
            visit.store.set_bucket_document(visit.bucket, "acl", acl)

    await visit.do(work)
    await visit.answer(200, {"location": f"/{visit.bucket}"})


async def head_bucket(visit: Visit) -> None:
    """Tell that a bucket is there and may be read."""
    await visit.do(visit.readable)
    headers = {"x-amz-bucket-region": REGION}
    if visit.is_obs:
        headers = {"x-obs-bucket-location": REGION, "x-obs-version": "3.0", "x-obs-storage-class": "STANDARD"}
    await visit.answer(200, headers)


async def get_location(visit: Visit) -> None:
    """Where a bucket is; S3 says nothing for its first region."""
    await visit.do(visit.readable)
    if visit.is_obs:
        await visit.answer_xml("Location", REGION)
    else:
        await visit.answer_xml("LocationConstraint", "")


async def delete_bucket(visit: Visit) -> None:
    """Remove an empty bucket."""

    def work() -> None:
        visit.owned()
        buckets.delete_bucket(visit.platform, visit.caller, visit.bucket)

    await visit.do(work)
    await visit.answer(204)
