"""The native protocol of the object store.

| request | does |
|---|---|
| GET /native/v1/buckets | list the workspace's buckets |
| PUT, GET, DELETE /native/v1/buckets/B | make, describe, remove a bucket |
| GET /native/v1/buckets/B/objects?prefix&delimiter&after&limit | list a page of objects |
| DELETE /native/v1/buckets/B/objects?prefix | remove all objects below a prefix |
| PUT, GET, HEAD, DELETE /native/v1/buckets/B/object?key | store, read (Range, If-Match), describe, remove an object |
| POST /native/v1/buckets/B/object?key&from_bucket&from_key | copy an object to the key |
| POST /native/v1/buckets/B/objects?prefix&from_bucket&from_prefix | copy a whole prefix in one step |

Keys travel in the query, where no proxy tidies up their dots and slashes.
"""

from __future__ import annotations

import base64
import binascii
import re
from email.utils import formatdate
from typing import Any
from urllib.parse import quote, unquote

from trainshed.api.obs.exchange import Exchange, parse_range
from trainshed.model.errors import Conflict, InvalidInput, NotFound, TrainshedError
from trainshed.services import buckets
from trainshed.services.identity import Caller, authenticate_token
from trainshed.services.platform import Platform
from trainshed.store.object_store import Bucket, ObjectInfo

__all__ = ["serve"]

_META = "x-trainshed-meta-"
_MAX_PAGE = 1000
_HEADER_NAME = re.compile(r"[a-z0-9_.-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]{1,255}")


class MethodNotAllowed(TrainshedError):
    """The address exists, but does not answer to this method."""

    status = 405
    code = "method_not_allowed"


async def serve(platform: Platform, exchange: Exchange) -> None:
    """Answer a request below /native/v1."""
    caller = await exchange.in_thread(authenticate_token, platform, exchange.bearer())
    match exchange.method, exchange.parts[2:]:
        case "GET", ["buckets"]:
            found = await exchange.in_thread(buckets.list_buckets, platform, caller)
            await exchange.answer_json({"buckets": [_bucket_json(bucket) for bucket in found]})
        case method, ["buckets", bucket]:
            await _serve_bucket(platform, exchange, caller, method, bucket)
        case method, ["buckets", bucket, "objects"]:
            await _serve_objects(platform, exchange, caller, method, bucket)
        case method, ["buckets", bucket, "object"]:
            await _serve_object(platform, exchange, caller, method, bucket)
        case _:
            raise NotFound("There is nothing here.", hint="docs/storage.md lists the addresses.")


async def _serve_bucket(
    platform: Platform, exchange: Exchange, caller: Caller, method: str, name: str
) -> None:
    match method:
        case "PUT":
            bucket = await exchange.in_thread(buckets.create_bucket, platform, caller, name)
            await exchange.answer_json(_bucket_json(bucket), 201)
        case "GET" | "HEAD":
            bucket = await exchange.in_thread(buckets.readable_bucket, platform, caller, name)
            await exchange.answer_json(_bucket_json(bucket))
        case "DELETE":
            await exchange.in_thread(buckets.delete_bucket, platform, caller, name)
            await exchange.answer(204, {})
        case _:
            raise _unknown_method(method)


async def _serve_objects(
    platform: Platform, exchange: Exchange, caller: Caller, method: str, bucket: str
) -> None:
    query = exchange.query()
    prefix = query.get("prefix", "")

    def list_page() -> dict[str, Any]:
        buckets.readable_bucket(platform, caller, bucket)
        page = platform.store.list(
            bucket,
            prefix,
            delimiter=query.get("delimiter", ""),
            after=query.get("after", ""),
            limit=_read_limit(query.get("limit", "")),
        )
        return {
            "objects": [_object_json(info) for info in page.objects],
            "folders": list(page.folders),
            "next_after": page.next_after,
        }

    def delete_prefix() -> dict[str, Any]:
        buckets.writable_bucket(platform, caller, bucket)
        if "prefix" not in query:
            raise InvalidInput(
                "The prefix is missing.", hint="An empty one (prefix=) means all.", where="prefix"
            )
        return {"deleted": platform.store.delete_prefix(bucket, prefix)}

    def copy_prefix() -> dict[str, Any]:
        source = _required(query, "from_bucket")
        buckets.readable_bucket(platform, caller, source)
        buckets.writable_bucket(platform, caller, bucket)
        return {"copied": platform.store.copy_prefix(source, query.get("from_prefix", ""), bucket, prefix)}

    actions = {"GET": list_page, "DELETE": delete_prefix, "POST": copy_prefix}
    if method not in actions:
        raise _unknown_method(method)
    await exchange.answer_json(await exchange.in_thread(actions[method]))


async def _serve_object(
    platform: Platform, exchange: Exchange, caller: Caller, method: str, bucket: str
) -> None:
    query = exchange.query()
    key = _required(query, "key")
    match method:
        case "PUT":
            await exchange.in_thread(buckets.writable_bucket, platform, caller, bucket)
            await exchange.answer_json(
                _object_json(await _receive_object(platform, exchange, bucket, key)), 201
            )
        case "GET":
            await exchange.in_thread(buckets.readable_bucket, platform, caller, bucket)
            await _send_object(platform, exchange, bucket, key)
        case "HEAD":
            await exchange.in_thread(buckets.readable_bucket, platform, caller, bucket)
            info = await exchange.in_thread(platform.store.info, bucket, key)
            await exchange.answer(200, {**_object_headers(info), "content-length": str(info.size)})
        case "DELETE":
            await exchange.in_thread(buckets.writable_bucket, platform, caller, bucket)
            existed = await exchange.in_thread(platform.store.delete, bucket, key)
            await exchange.answer_json({"deleted": int(existed)})
        case "POST":

            def copy() -> ObjectInfo:
                source = _required(query, "from_bucket")
                buckets.readable_bucket(platform, caller, source)
                buckets.writable_bucket(platform, caller, bucket)
                return platform.store.copy(source, _required(query, "from_key"), bucket, key)

            await exchange.answer_json(_object_json(await exchange.in_thread(copy)), 201)
        case _:
            raise _unknown_method(method)


async def _receive_object(platform: Platform, exchange: Exchange, bucket: str, key: str) -> ObjectInfo:
    headers = exchange.headers
    expected_md5 = _read_content_md5(headers.get("content-md5", ""))
    expected_sha256 = headers.get("x-sha256", "")
    metadata = {
        name.removeprefix(_META): unquote(value) for name, value in headers.items() if name.startswith(_META)
    }

    def begin() -> Any:
        return platform.store.upload(
            bucket,
            key,
            content_type=headers.get("content-type", "application/octet-stream")[:255],
            metadata=metadata,
            with_sha256=bool(expected_sha256),
        )

    upload = await exchange.in_thread(begin)
    try:
        async for piece in exchange.pieces():
            await exchange.in_thread(upload.write, piece)

        def commit() -> ObjectInfo:
            info: ObjectInfo = upload.commit(expected_md5=expected_md5, expected_sha256=expected_sha256)
            return info

        return await exchange.in_thread(commit)
    except BaseException:
        await exchange.in_thread(upload.abort)
        raise


async def _send_object(platform: Platform, exchange: Exchange, bucket: str, key: str) -> None:
    info, file = await exchange.in_thread(platform.store.open_object, bucket, key)
    try:
        wanted = exchange.headers.get("if-match", "").strip('"')
        if wanted not in ("", "*", info.etag):
            raise Conflict(
                f"The object '{key}' has changed.", hint="Begin the download anew.", code="object_changed"
            )
        headers = _object_headers(info)
        span = parse_range(exchange.headers.get("range", ""), info.size)
        if span is None:
            await exchange.answer_file(200, headers, file, info.size)
        else:
            start, length = span
            headers["content-range"] = f"bytes {start}-{start + length - 1}/{info.size}"
            await exchange.in_thread(file.seek, start)
            await exchange.answer_file(206, headers, file, length)
    finally:
        file.close()


def _bucket_json(bucket: Bucket) -> dict[str, Any]:
    return {"name": bucket.name, "workspace_id": bucket.workspace_id, "created_at": bucket.created_at}


def _object_json(info: ObjectInfo) -> dict[str, Any]:
    return {
        "key": info.key,
        "size": info.size,
        "etag": info.etag,
        "modified_at": info.modified_at,
        "content_type": info.content_type,
        "metadata": info.metadata,
    }


def _object_headers(info: ObjectInfo) -> dict[str, str]:
    headers = {
        "etag": f'"{info.etag}"',
        "last-modified": formatdate(info.modified_at, usegmt=True),
        "content-type": info.content_type if _HEADER_VALUE.fullmatch(info.content_type) else "",
        "accept-ranges": "bytes",
        # What users store is data: no browser may take it for a page of ours.
        "x-content-type-options": "nosniff",
        "content-disposition": "attachment",
        "x-trainshed-modified": repr(info.modified_at),
    }
    for name, value in info.metadata.items():
        if _HEADER_NAME.fullmatch(name):
            headers[_META + name] = quote(value)
    return headers


def _required(query: dict[str, str], name: str) -> str:
    if not query.get(name):
        raise InvalidInput(f"The parameter '{name}' is missing.", where=name)
    return query[name]


def _read_limit(text: str) -> int:
    if not text:
        return _MAX_PAGE
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= _MAX_PAGE:
        raise InvalidInput(f"'{text[:20]}' is not a page size.", hint="Use 1 to 1000.", where="limit")
    return int(text)


def _read_content_md5(text: str) -> str:
    if not text:
        return ""
    try:
        digest = base64.b64decode(text, validate=True)
    except binascii.Error:
        digest = b""
    if len(digest) != 16:
        raise InvalidInput("The Content-MD5 cannot be read.", hint="Send the 16 bytes in base64.")
    return digest.hex()


def _unknown_method(method: str) -> MethodNotAllowed:
    return MethodNotAllowed(f"{method} does nothing here.", hint="docs/storage.md lists the addresses.")
