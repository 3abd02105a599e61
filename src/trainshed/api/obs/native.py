"""The native protocol of the object store.

| request | does |
|---|---|
| GET /_/v1/buckets | list the workspace's buckets |
| PUT, GET, DELETE /_/v1/buckets/B | make, describe, remove a bucket |
| GET /_/v1/buckets/B/objects?prefix&delimiter&after&limit | list a page of objects |
| DELETE /_/v1/buckets/B/objects?prefix | remove all objects below a prefix |
| PUT, GET, HEAD, DELETE /_/v1/buckets/B/object?key | store, read (Range, If-Match), describe, remove an object |
| POST /_/v1/buckets/B/object?key&from_bucket&from_key | copy an object to the key |
| POST /_/v1/buckets/B/objects?prefix&from_bucket&from_prefix | copy a whole prefix in one step |

Keys travel in the query, where no proxy tidies up their dots and slashes.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Callable
from email.utils import formatdate
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote, unquote

from trainshed.api.obs.exchange import Exchange, parse_range
from trainshed.model.errors import Conflict, InvalidInput, NotFound, TrainshedError
from trainshed.services import buckets
from trainshed.services.identity import Caller, authenticate_token
from trainshed.services.platform import Platform
from trainshed.store.embedded.room import require_room
from trainshed.store.object_store import Bucket, ObjectInfo, Upload

__all__ = ["serve"]

T = TypeVar("T")

_META = "x-trainshed-meta-"
_MAX_PAGE = 1000
_HEADER_NAME = re.compile(r"[a-z0-9_.-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]{1,255}")


class MethodNotAllowed(TrainshedError):
    """The address exists, but does not answer to this method."""

    status = 405
    code = "method_not_allowed"


class _Visit:
    """A request with its token. Who the caller is, and what they may, is asked in the thread that does the work."""

    def __init__(self, platform: Platform, exchange: Exchange) -> None:
        self.platform = platform
        self.store = platform.store
        self.exchange = exchange
        self._token = exchange.bearer()

    async def do(self, work: Callable[[Caller], T]) -> T:
        """Run work that needs the caller, in one thread and one go."""
        return await self.exchange.at_desk(lambda: work(authenticate_token(self.platform, self._token)))


async def serve(platform: Platform, exchange: Exchange) -> None:
    """Answer a request below /_/v1."""
    visit = _Visit(platform, exchange)
    match exchange.parts[2:]:
        case ["buckets"]:
            if exchange.method != "GET":
                raise _unknown_method(exchange.method)
            found = await visit.do(lambda caller: buckets.list_buckets(platform, caller))
            await exchange.answer_json({"buckets": [_bucket_json(bucket) for bucket in found]})
        case ["buckets", bucket]:
            await _serve_bucket(visit, bucket)
        case ["buckets", bucket, "objects"]:
            await _serve_objects(visit, bucket)
        case ["buckets", bucket, "object"]:
            await _serve_object(visit, bucket)
        case _:
            raise NotFound("There is nothing here.", hint="docs/storage.md lists the addresses.")


async def _serve_bucket(visit: _Visit, name: str) -> None:
    platform, exchange = visit.platform, visit.exchange
    match exchange.method:
        case "PUT":
            bucket = await visit.do(lambda caller: buckets.create_bucket(platform, caller, name))
            await exchange.answer_json(_bucket_json(bucket), 201)
        case "GET" | "HEAD":
            bucket = await visit.do(lambda caller: buckets.readable_bucket(platform, caller, name))
            await exchange.answer_json(_bucket_json(bucket))
        case "DELETE":
            await visit.do(lambda caller: buckets.delete_bucket(platform, caller, name))
            await exchange.answer(204, {})
        case method:
            raise _unknown_method(method)


async def _serve_objects(visit: _Visit, bucket: str) -> None:
    platform, query = visit.platform, visit.exchange.query()
    prefix = query.get("prefix", "")

    def list_page(caller: Caller) -> dict[str, Any]:
        buckets.readable_bucket(platform, caller, bucket)
        page = visit.store.list(
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

    def delete_prefix(caller: Caller) -> dict[str, Any]:
        buckets.writable_bucket(platform, caller, bucket)
        if "prefix" not in query:
            raise InvalidInput(
                "The prefix is missing.", hint="An empty one (prefix=) means all.", where="prefix"
            )
        return {"deleted": visit.store.delete_prefix(bucket, prefix)}

    def copy_prefix(caller: Caller) -> dict[str, Any]:
        source = _required(query, "from_bucket")
        buckets.readable_bucket(platform, caller, source)
        buckets.writable_bucket(platform, caller, bucket)
        return {"copied": visit.store.copy_prefix(source, query.get("from_prefix", ""), bucket, prefix)}

    actions = {"GET": list_page, "DELETE": delete_prefix, "POST": copy_prefix}
    if visit.exchange.method not in actions:
        raise _unknown_method(visit.exchange.method)
    await visit.exchange.answer_json(await visit.do(actions[visit.exchange.method]))


async def _serve_object(visit: _Visit, bucket: str) -> None:
    platform, exchange, query = visit.platform, visit.exchange, visit.exchange.query()

    def describe(caller: Caller) -> ObjectInfo:
        buckets.readable_bucket(platform, caller, bucket)
        return visit.store.info(bucket, _required(query, "key"))

    def delete(caller: Caller) -> bool:
        buckets.writable_bucket(platform, caller, bucket)
        return visit.store.delete(bucket, _required(query, "key"))

    def copy(caller: Caller) -> ObjectInfo:
        source = _required(query, "from_bucket")
        buckets.readable_bucket(platform, caller, source)
        buckets.writable_bucket(platform, caller, bucket)
        return visit.store.copy(source, _required(query, "from_key"), bucket, _required(query, "key"))

    match exchange.method:
        case "PUT":
            info = await _receive_object(visit, bucket, query)
            await exchange.answer_json(_object_json(info), 201)
        case "GET":
            await _send_object(visit, bucket, query)
        case "HEAD":
            info = await visit.do(describe)
            await exchange.answer(200, {**_object_headers(info), "content-length": str(info.size)})
        case "DELETE":
            await exchange.answer_json({"deleted": int(await visit.do(delete))})
        case "POST":
            await exchange.answer_json(_object_json(await visit.do(copy)), 201)
        case method:
            raise _unknown_method(method)


async def _receive_object(visit: _Visit, bucket: str, query: dict[str, str]) -> ObjectInfo:
    exchange, headers = visit.exchange, visit.exchange.headers
    expected_sha256 = headers.get("x-sha256", "")
    metadata = {
        name.removeprefix(_META): unquote(value) for name, value in headers.items() if name.startswith(_META)
    }

    def begin(caller: Caller) -> tuple[Upload, str]:
        place = buckets.writable_bucket(visit.platform, caller, bucket)
        expected_md5 = _read_content_md5(headers.get("content-md5", ""))
        announced = headers.get("content-length", "")
        key = _required(query, "key")
        require_room(visit.store, place, key, int(announced) if announced.isdecimal() else None)
        upload = visit.store.upload(
            bucket,
            key,
            content_type=headers.get("content-type", "application/octet-stream")[:255],
            metadata=metadata,
            with_sha256=bool(expected_sha256),
        )
        return upload, expected_md5

    upload, expected_md5 = await visit.do(begin)

    def finish(last: bytes) -> ObjectInfo:
        upload.write(last)
        return upload.commit(expected_md5=expected_md5, expected_sha256=expected_sha256)

    # One piece is written while the next one arrives.
    writing: asyncio.Future[None] | None = None
    try:
        held = b""
        async for piece in exchange.pieces():
            if writing is not None:
                await writing
                writing = None
            if held:
                writing = asyncio.ensure_future(exchange.in_thread(upload.write, held))
            held = piece
        if writing is not None:
            await writing
            writing = None
        return await exchange.in_thread(finish, held)
    except BaseException:
        if writing is not None:
            await asyncio.wait([writing])
        await exchange.in_thread(upload.abort)
        raise


async def _send_object(visit: _Visit, bucket: str, query: dict[str, str]) -> None:
    exchange = visit.exchange

    def begin(caller: Caller) -> tuple[ObjectInfo, BinaryIO]:
        buckets.readable_bucket(visit.platform, caller, bucket)
        return visit.store.open_object(bucket, _required(query, "key"))

    # Sent from the open file, not by path: the server would open the path some time after our answer, when
    # the object may be overwritten and its file gone.
    info, file = await visit.do(begin)
    try:
        wanted = exchange.headers.get("if-match", "").strip('"')
        if wanted not in ("", "*", info.etag):
            raise Conflict(
                f"The object '{info.key}' has changed.",
                hint="Begin the download anew.",
                code="object_changed",
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
