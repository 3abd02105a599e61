"""The S3 and OBS protocols: which operation a request means.

| about | operations |
|---|---|
| service | list buckets; `HEAD ?apiversion` (OBS) |
| bucket | create, head, delete, `?location`; list objects (v1, v2), `?uploads`, `?versions`; `?versioning`, `?acl`, `?policy`, `?tagging`, `?lifecycle`, `?cors`, `?encryption`; `POST ?delete`; `POST` of a form |
| object | put, get, head, delete, copy; `?attributes`; `?uploads`, `?uploadId`; `?acl`, `?tagging`; OBS: `?append`, `?rename`, `?metadata` |
| browsers | `OPTIONS` of buckets and objects |

A parameter that names something we do not know is answered with NotImplemented: it must never be taken for the plain
operation without it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from trainshed.api.obs import (
    acl,
    bucket_operations,
    bucket_policy,
    cors,
    encryption,
    fixed_settings,
    form_upload,
    lifecycle,
    listing,
    multipart,
    object_attributes,
    object_reading,
    object_writing,
    obs_operations,
    tagging,
    versioning,
)
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
        "max-buckets",
        "bucket-region",
        "max-parts",
        "part-number-marker",
        "version-id-marker",
        "position",
        "name",
        "partnumber",
        "versionid",
        "content-type",
        "content-md5",
    ]
)

_BUCKET: dict[tuple[str, str], _Operation] = {
    ("GET", ""): listing.list_objects,
    ("HEAD", ""): bucket_operations.head_bucket,
    ("PUT", ""): bucket_operations.create_bucket,
    ("DELETE", ""): bucket_operations.delete_bucket,
    ("GET", "location"): bucket_operations.get_location,
    ("GET", "uploads"): multipart.list_uploads,
    ("GET", "versioning"): versioning.get_versioning,
    ("PUT", "versioning"): versioning.put_versioning,
    ("GET", "versions"): versioning.list_versions,
    ("POST", ""): form_upload.post_object,
    ("POST", "delete"): object_writing.delete_objects,
    ("GET", "acl"): acl.get_bucket_acl,
    ("PUT", "acl"): acl.put_bucket_acl,
    ("GET", "policy"): bucket_policy.get_policy,
    ("PUT", "policy"): bucket_policy.put_policy,
    ("DELETE", "policy"): bucket_policy.delete_policy,
    ("GET", "tagging"): tagging.get_bucket_tags,
    ("PUT", "tagging"): tagging.put_bucket_tags,
    ("DELETE", "tagging"): tagging.delete_bucket_tags,
    ("GET", "lifecycle"): lifecycle.get_lifecycle,
    ("PUT", "lifecycle"): lifecycle.put_lifecycle,
    ("DELETE", "lifecycle"): lifecycle.delete_lifecycle,
    ("GET", "cors"): cors.get_cors,
    ("PUT", "cors"): cors.put_cors,
    ("DELETE", "cors"): cors.delete_cors,
    ("GET", "encryption"): encryption.get_encryption,
    ("PUT", "encryption"): encryption.put_encryption,
    ("DELETE", "encryption"): encryption.delete_encryption,
}
_OBJECT: dict[tuple[str, str], _Operation] = {
    ("GET", ""): object_reading.get_object,
    ("HEAD", ""): object_reading.head_object,
    ("PUT", ""): object_writing.put_object,
    ("PUT", "copy-source"): object_writing.copy_object,
    ("DELETE", ""): object_writing.delete_object,
    ("POST", "uploads"): multipart.create_upload,
    ("PUT", "uploadId"): multipart.put_part,
    ("PUT", "uploadId+copy-source"): multipart.copy_part,
    ("POST", "uploadId"): multipart.complete_upload,
    ("DELETE", "uploadId"): multipart.abort_upload,
    ("GET", "uploadId"): multipart.list_parts,
    ("GET", "attributes"): object_attributes.get_attributes,
    ("GET", "acl"): acl.get_object_acl,
    ("PUT", "acl"): acl.put_object_acl,
    ("GET", "tagging"): tagging.get_tags,
    ("PUT", "tagging"): tagging.put_tags,
    ("DELETE", "tagging"): tagging.delete_tags,
    ("POST", "append"): obs_operations.append_object,
    ("POST", "rename"): obs_operations.rename,
    ("PUT", "metadata"): obs_operations.set_metadata,
}


async def serve(platform: Platform, exchange: Exchange, domains: Sequence[str]) -> None:
    """Answer a request of an S3 or OBS client."""
    visit = Visit(platform, exchange, domains)
    try:
        visit.read()
        await cors.read_origin(visit)
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
    if visit.method == "OPTIONS":
        return cors.answer_preflight
    subject = _subject(visit)
    if not visit.bucket:
        if visit.method != "GET" or subject:
            raise _not_allowed()
        return bucket_operations.list_buckets
    if visit.key:
        if visit.method == "PUT" and subject in ("", "uploadId") and visit.option("copy-source"):
            subject = f"{subject}+copy-source".lstrip("+")
        table = _OBJECT
    else:
        table = _BUCKET
        if visit.method == "GET" and subject in fixed_settings.FIXED_SETTINGS:
            return lambda visit: fixed_settings.get_setting(visit, subject)
        if visit.method == "GET" and not subject and visit.query.get("list-type") == "2":
            return listing.list_objects_v2
    if visit.method in ("PUT", "POST") and "versionId" in visit.query and subject in ("", "copy-source"):
        raise S3Error("InvalidArgument", "This operation does not accept a version-id.")
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
