"""The S3 and OBS protocols: which operation a request means.

| about | operations |
|---|---|
| service | list buckets; `HEAD ?apiversion` (OBS) |
| bucket | create, head, delete, `?location`; list objects (v1, v2); `POST ?delete` |
| object | put, get, head, delete, copy |

A parameter that names something we do not know is answered with NotImplemented: it must never be taken for the plain
operation without it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from trainshed.api.obs import bucket_operations, listing, object_reading, object_writing
from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.exchange import Exchange, TransferBroken
from trainshed.api.obs.visit import Visit
from trainshed.model.errors import TrainshedError
from trainshed.services.platform import Platform

__all__ = ["serve"]

_Operation = Callable[[Visit], Awaitable[None]]
_log = logging.getLogger("trainshed.store")

# Parameters that only say more about an operation.
_DETAILS = frozenset(
    [
        "prefix",
        "delimiter",
        "marker",
        "max-keys",
        "encoding-type",
        "list-type",
        "continuation-token",
        "start-after",
        "fetch-owner",
        "x-id",
        "expires",
        "signature",
        "awsaccesskeyid",
        "accesskeyid",
        "key-marker",
        "upload-id-marker",
        "max-uploads",
        "max-parts",
        "part-number-marker",
        "version-id-marker",
        "position",
        "name",
        "partnumber",
        "content-type",
        "content-md5",
    ]
)

_SETTINGS = frozenset(
    [
        "versioning",
        "policy",
        "cors",
        "lifecycle",
        "tagging",
        "encryption",
        "requestPayment",
        "logging",
        "notification",
    ]
)

_BUCKET: dict[tuple[str, str], _Operation] = {
    ("GET", ""): listing.list_objects,
    ("HEAD", ""): bucket_operations.head_bucket,
    ("PUT", ""): bucket_operations.create_bucket,
    ("DELETE", ""): bucket_operations.delete_bucket,
    ("GET", "location"): bucket_operations.get_location,
    ("POST", "delete"): object_writing.delete_objects,
}
_OBJECT: dict[tuple[str, str], _Operation] = {
    ("GET", ""): object_reading.get_object,
    ("HEAD", ""): object_reading.head_object,
    ("PUT", ""): object_writing.put_object,
    ("PUT", "copy-source"): object_writing.copy_object,
    ("DELETE", ""): object_writing.delete_object,
}


async def serve(platform: Platform, exchange: Exchange, domains: frozenset[str]) -> None:
    """Answer a request of an S3 or OBS client."""
    visit = Visit(platform, exchange, domains)
    try:
        visit.read()
        await _route(visit)(visit)
    except (TransferBroken, asyncio.CancelledError):
        return  # The other side is gone, and so is what it had begun.
    except TrainshedError as error:
        await visit.answer_error(error)
    except Exception:
        _log.exception("A request failed: %s %s", exchange.method, exchange.path)
        await visit.answer_error(
            S3Error("InternalError", "We encountered an internal error. Please try again.")
        )


def _route(visit: Visit) -> _Operation:
    if "apiversion" in visit.query and visit.method in ("HEAD", "GET"):
        return _negotiate
    subject = _subject(visit)
    if not visit.bucket:
        if visit.method != "GET" or subject:
            raise _not_allowed()
        return bucket_operations.list_buckets
    if visit.key:
        if visit.method == "PUT" and not subject and visit.option("copy-source"):
            subject = "copy-source"
        table = _OBJECT
    else:
        table = _BUCKET
        if visit.method == "GET" and subject in _SETTINGS:
            return lambda visit: bucket_operations.get_setting(visit, subject)
        if visit.method == "GET" and not subject and visit.query.get("list-type") == "2":
            return listing.list_objects_v2
    operation = table.get((visit.method, subject))
    if operation is not None:
        return operation
    if subject:
        raise S3Error("NotImplemented", f"{visit.method} with '{subject[:40]}' is not implemented.")
    raise _not_allowed()


def _subject(visit: Visit) -> str:
    """The parameter that says what part of the bucket or object is meant; empty for the thing itself."""
    for name in visit.query:
        lower = name.lower()
        if lower not in _DETAILS and not lower.startswith(("x-amz-", "x-obs-", "response-")):
            return name
    return ""


async def _negotiate(visit: Visit) -> None:
    """The OBS SDK asks which dialect is spoken here: also its own."""
    await visit.answer(200, {"x-obs-api": "3.0"})


def _not_allowed() -> S3Error:
    return S3Error("MethodNotAllowed", "The specified method is not allowed against this resource.")
