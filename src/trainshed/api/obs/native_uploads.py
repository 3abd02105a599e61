"""Large objects over the native protocol: sent in parts, and continued where they stopped."""

from __future__ import annotations

import json
from typing import Any

from trainshed.api.obs.native_visit import (
    NativeVisit,
    object_json,
    read_condition,
    read_content_md5,
    read_metadata,
    receive_into,
    required,
    unknown_method,
)
from trainshed.model.errors import InvalidInput
from trainshed.services import buckets
from trainshed.services.identity import Caller
from trainshed.store.embedded.room import require_room
from trainshed.store.object_store import MultipartUpload, ObjectInfo, Part, PartUpload

__all__ = ["serve_upload", "serve_uploads"]

# Unfinished uploads of one key that are told; nobody needs more than the latest few.
_MOST_UPLOADS = 100
_LARGEST_DOCUMENT = 2 << 20


async def serve_uploads(visit: NativeVisit, bucket: str) -> None:
    """What of an object is under way, and the beginning of another upload."""
    exchange, query = visit.exchange, visit.exchange.query()

    def list_uploads(caller: Caller) -> dict[str, Any]:
        key = required(query, "key")
        buckets.writable_bucket(visit.platform, caller, bucket, key)
        page = visit.store.list_uploads(bucket, key, limit=_MOST_UPLOADS)
        return {"uploads": [_upload_json(upload) for upload in page.uploads if upload.key == key]}

    def create(caller: Caller) -> dict[str, Any]:
        buckets.writable_bucket(visit.platform, caller, bucket, query.get("key", ""))
        upload = visit.store.create_upload(
            bucket,
            required(query, "key"),
            content_type=exchange.headers.get("content-type", "application/octet-stream")[:255],
            metadata=read_metadata(exchange.headers),
        )
        return _upload_json(upload)

    match exchange.method:
        case "GET":
            await exchange.answer_json(await visit.do(list_uploads))
        case "POST":
            await exchange.answer_json(await visit.do(create), 201)
        case method:
            raise unknown_method(method)


async def serve_upload(visit: NativeVisit, bucket: str) -> None:
    """The parts of one upload: listed, sent, put together or thrown away."""
    exchange, query = visit.exchange, visit.exchange.query()

    def list_parts(caller: Caller) -> dict[str, Any]:
        buckets.writable_bucket(visit.platform, caller, bucket, query.get("key", ""))
        after = _read_number(query.get("after", "0"), "after")
        page = visit.store.list_parts(bucket, required(query, "key"), required(query, "upload"), after=after)
        return {"parts": [_part_json(part) for part in page.parts], "next_after": page.next_after}

    def abort(caller: Caller) -> None:
        buckets.writable_bucket(visit.platform, caller, bucket, query.get("key", ""))
        visit.store.abort_upload(bucket, required(query, "key"), required(query, "upload"))

    match exchange.method:
        case "GET":
            await exchange.answer_json(await visit.do(list_parts))
        case "PUT":
            await exchange.answer_json(_part_json(await _receive_part(visit, bucket, query)), 201)
        case "POST":
            await exchange.answer_json(object_json(await _complete(visit, bucket, query)), 201)
        case "DELETE":
            await visit.do(abort)
            await exchange.answer(204, {})
        case method:
            raise unknown_method(method)


async def _receive_part(visit: NativeVisit, bucket: str, query: dict[str, str]) -> Part:
    headers = visit.exchange.headers

    def begin(caller: Caller) -> tuple[PartUpload, str]:
        place = buckets.writable_bucket(visit.platform, caller, bucket, query.get("key", ""))
        key, upload_id = required(query, "key"), required(query, "upload")
        number = _read_number(required(query, "number"), "number")
        announced = headers.get("content-length", "")
        size = int(announced) if announced.isdecimal() else None
        require_room(visit.store, place, key, size, part=(upload_id, number))
        expected = read_content_md5(headers.get("content-md5", ""))
        return visit.store.upload_part(bucket, key, upload_id, number, size=size), expected

    part, expected_md5 = await visit.do(begin)
    return await receive_into(visit.exchange, part, lambda: part.commit(expected_md5=expected_md5))


async def _complete(visit: NativeVisit, bucket: str, query: dict[str, str]) -> ObjectInfo:
    body = b""
    async for piece in visit.exchange.pieces():
        body += piece
        if len(body) > _LARGEST_DOCUMENT:
            raise InvalidInput("The list of parts is too long.", hint="An object has at most 10,000 parts.")
    try:
        parts = [(int(number), str(etag)) for number, etag in json.loads(body)["parts"]]
    except (ValueError, TypeError, KeyError):
        raise InvalidInput(
            "The list of parts cannot be read.", hint='Send {"parts": [[1, "etag"], ...]}.', where="parts"
        ) from None

    def complete(caller: Caller) -> ObjectInfo:
        buckets.writable_bucket(visit.platform, caller, bucket, query.get("key", ""))
        return visit.store.complete_upload(
            bucket,
            required(query, "key"),
            required(query, "upload"),
            parts,
            condition=read_condition(visit.exchange.headers),
        )

    return await visit.do(complete)


def _read_number(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise InvalidInput(f"'{text[:20]}' is no part number.", hint="Use 1 to 10000.", where=where)
    return int(text)


def _upload_json(upload: MultipartUpload) -> dict[str, Any]:
    return {"upload": upload.upload_id, "created_at": upload.created_at, "metadata": upload.metadata}


def _part_json(part: Part) -> dict[str, Any]:
    return {"number": part.number, "etag": part.etag, "size": part.size}
