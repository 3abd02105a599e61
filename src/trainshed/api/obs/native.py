"""The native protocol of the object store.

| request | does |
|---|---|
| GET /_/v1/buckets | list the workspace's buckets |
| PUT, GET, DELETE /_/v1/buckets/B | make, describe, remove a bucket |
| GET /_/v1/buckets/B/objects?prefix&delimiter&after&limit | list a page of objects |
| DELETE /_/v1/buckets/B/objects?prefix | remove all objects below a prefix |
| PUT, GET, HEAD, DELETE /_/v1/buckets/B/object?key | store, read (Range, If-Match), describe, remove an object |
| PATCH /_/v1/buckets/B/object?key&position | put bytes behind those of an appendable object of that size |
| POST /_/v1/buckets/B/object?key&from_bucket&from_key | copy an object to the key |
| POST /_/v1/buckets/B/objects?prefix&from_bucket&from_prefix | copy a whole prefix in one step |
| GET, POST /_/v1/buckets/B/uploads?key | what of an object has come in parts so far; begin to send it in parts |
| GET, PUT, POST, DELETE /_/v1/buckets/B/upload?key&upload | list parts, send one (`number`), complete, abort |

Keys travel in the query, where no proxy tidies up their dots and slashes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from email.utils import formatdate
from typing import Any, BinaryIO
from urllib.parse import quote

from trainshed.api.obs import native_uploads
from trainshed.api.obs.exchange import Exchange, parse_range
from trainshed.api.obs.native_visit import (
    META,
    NativeVisit,
    object_json,
    read_condition,
    read_content_md5,
    read_metadata,
    receive_into,
    required,
    unknown_method,
)
from trainshed.model.errors import Conflict, InvalidInput, NotFound
from trainshed.services import buckets
from trainshed.services.identity import Caller
from trainshed.services.platform import Platform
from trainshed.store.embedded.room import require_room
from trainshed.store.object_store import Bucket, ObjectInfo, Upload

__all__ = ["serve"]

_MAX_PAGE = 1000
_LONGEST_HEADER = 4000
_HEADER_NAME = re.compile(r"[a-z0-9_.-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]{1,255}")


async def serve(platform: Platform, exchange: Exchange) -> None:
    """Answer a request below /_/v1."""
    visit = NativeVisit(platform, exchange)
    match exchange.parts[2:]:
        case ["buckets"]:
            if exchange.method != "GET":
                raise unknown_method(exchange.method)
            found = await visit.do(lambda caller: buckets.list_buckets(platform, caller))
            await exchange.answer_json({"buckets": [_bucket_json(bucket) for bucket in found]})
        case ["buckets", bucket]:
            await _serve_bucket(visit, bucket)
        case ["buckets", bucket, "objects"]:
            await _serve_objects(visit, bucket)
        case ["buckets", bucket, "object"]:
            await _serve_object(visit, bucket)
        case ["buckets", bucket, "uploads"]:
            await native_uploads.serve_uploads(visit, bucket)
        case ["buckets", bucket, "upload"]:
            await native_uploads.serve_upload(visit, bucket)
        case _:
            raise NotFound("There is nothing here.", hint="docs/storage.md lists the addresses.")


async def _serve_bucket(visit: NativeVisit, name: str) -> None:
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
            raise unknown_method(method)


async def _serve_objects(visit: NativeVisit, bucket: str) -> None:
    platform, query = visit.platform, visit.exchange.query()
    prefix = query.get("prefix", "")

    def list_page(caller: Caller) -> dict[str, Any]:
        buckets.readable_bucket(platform, caller, bucket, prefix)
        page = visit.store.list(
            bucket,
            prefix,
            delimiter=query.get("delimiter", ""),
            after=query.get("after", ""),
            limit=_read_limit(query.get("limit", "")),
        )
        return {
            "objects": [object_json(info) for info in page.objects],
            "folders": list(page.folders),
            "next_after": page.next_after,
        }

    def delete_prefix(caller: Caller) -> dict[str, Any]:
        buckets.writable_bucket(platform, caller, bucket, prefix)
        if "prefix" not in query:
            raise InvalidInput(
                "The prefix is missing.", hint="An empty one (prefix=) means all.", where="prefix"
            )
        return {"deleted": visit.store.delete_prefix(bucket, prefix)}

    def copy_prefix(caller: Caller) -> dict[str, Any]:
        source = required(query, "from_bucket")
        buckets.readable_bucket(platform, caller, source, query.get("from_prefix", ""))
        buckets.writable_bucket(platform, caller, bucket, prefix)
        return {"copied": visit.store.copy_prefix(source, query.get("from_prefix", ""), bucket, prefix)}

    actions = {"GET": list_page, "DELETE": delete_prefix, "POST": copy_prefix}
    if visit.exchange.method not in actions:
        raise unknown_method(visit.exchange.method)
    await visit.exchange.answer_json(await visit.do(actions[visit.exchange.method]))


async def _serve_object(visit: NativeVisit, bucket: str) -> None:
    platform, exchange, query = visit.platform, visit.exchange, visit.exchange.query()

    key = query.get("key", "")

    def describe(caller: Caller) -> ObjectInfo:
        buckets.readable_bucket(platform, caller, bucket, key)
        return visit.store.info(bucket, required(query, "key"))

    def delete(caller: Caller) -> bool:
        buckets.writable_bucket(platform, caller, bucket, key)
        return visit.store.delete(bucket, required(query, "key"))

    def copy(caller: Caller) -> ObjectInfo:
        source = required(query, "from_bucket")
        buckets.readable_bucket(platform, caller, source, query.get("from_key", ""))
        buckets.writable_bucket(platform, caller, bucket, key)
        return visit.store.copy(source, required(query, "from_key"), bucket, required(query, "key"))

    match exchange.method:
        case "PUT":
            info = await _receive_object(visit, bucket, query)
            await exchange.answer_json(object_json(info), 201)
        case "GET":
            await _send_object(visit, bucket, query)
        case "HEAD":
            info = await visit.do(describe)
            await exchange.answer(200, {**_object_headers(info), "content-length": str(info.size)})
        case "DELETE":
            await exchange.answer_json({"deleted": int(await visit.do(delete))})
        case "PATCH":
            await exchange.answer_json(object_json(await _append(visit, bucket, query)))
        case "POST":
            await exchange.answer_json(object_json(await visit.do(copy)), 201)
        case method:
            raise unknown_method(method)


async def _receive_object(visit: NativeVisit, bucket: str, query: dict[str, str]) -> ObjectInfo:
    exchange, headers = visit.exchange, visit.exchange.headers
    expected_sha256 = headers.get("x-sha256", "")

    def begin(caller: Caller) -> tuple[Upload, str]:
        key = required(query, "key")
        place = buckets.writable_bucket(visit.platform, caller, bucket, key)
        expected_md5 = read_content_md5(headers.get("content-md5", ""))
        announced = headers.get("content-length", "")
        require_room(visit.store, place, key, int(announced) if announced.isdecimal() else None)
        upload = visit.store.upload(
            bucket,
            key,
            content_type=headers.get("content-type", "application/octet-stream")[:255],
            metadata=read_metadata(headers),
            condition=read_condition(headers),
            with_sha256=bool(expected_sha256),
        )
        return upload, expected_md5

    upload, expected_md5 = await visit.do(begin)

    return await receive_into(
        exchange,
        upload,
        lambda: upload.commit(expected_md5=expected_md5, expected_sha256=expected_sha256),
    )


async def _append(visit: NativeVisit, bucket: str, query: dict[str, str]) -> ObjectInfo:
    position = query.get("position", "")

    def begin(caller: Caller) -> Upload:
        key = required(query, "key")
        buckets.writable_bucket(visit.platform, caller, bucket, key)
        if not (position.isascii() and position.isdigit() and len(position) < 19):
            raise InvalidInput("The position is missing.", hint="It is the object's size.", where="position")
        return visit.store.append(bucket, key, int(position))

    upload = await visit.do(begin)
    return await receive_into(visit.exchange, upload, upload.commit)


async def _send_object(visit: NativeVisit, bucket: str, query: dict[str, str]) -> None:
    exchange = visit.exchange

    def begin(caller: Caller) -> tuple[ObjectInfo, BinaryIO, str]:
        buckets.readable_bucket(visit.platform, caller, bucket, query.get("key", ""))
        info, file = visit.store.open_object(bucket, required(query, "key"))
        try:
            # The ETag of an object in parts can only be compared by who knows the parts.
            pieces = visit.store.piece_sizes(bucket, info.key) if "-" in info.etag else ()
        except NotFound:
            pieces = ()
        except BaseException:
            file.close()
            raise
        return info, file, _render_pieces(pieces) if sum(pieces) == info.size else ""

    # Sent from the open file, not by path: the server would open the path some time after our answer, when
    # the object may be overwritten and its file gone.
    info, file, pieces = await visit.do(begin)
    try:
        wanted = exchange.headers.get("if-match", "").strip('"')
        if wanted not in ("", "*", info.etag):
            raise Conflict(
                f"The object '{info.key}' has changed.",
                hint="Begin the download anew.",
                code="object_changed",
            )
        headers = _object_headers(info)
        if 0 < len(pieces) <= _LONGEST_HEADER:
            headers["x-trainshed-parts"] = pieces
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


def _render_pieces(sizes: Sequence[int]) -> str:
    """The sizes of an object's parts, equal ones next to each other together: `16777216x3,1000`."""
    runs = [(size, len(list(group))) for size, group in itertools.groupby(sizes)]
    return ",".join(f"{size}x{count}" if count > 1 else str(size) for size, count in runs)


def _bucket_json(bucket: Bucket) -> dict[str, Any]:
    return {
        "name": bucket.name,
        "workspace_id": bucket.workspace_id,
        "created_at": bucket.created_at,
        "versioning": bucket.versioning,
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
    if info.is_appendable:
        headers["x-trainshed-appendable"] = "1"
    for name, value in info.metadata.items():
        if _HEADER_NAME.fullmatch(name):
            headers[META + name] = quote(value)
    return headers


def _read_limit(text: str) -> int:
    if not text:
        return _MAX_PAGE
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= _MAX_PAGE:
        raise InvalidInput(f"'{text[:20]}' is not a page size.", hint="Use 1 to 1000.", where="limit")
    return int(text)
