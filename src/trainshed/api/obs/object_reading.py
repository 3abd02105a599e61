"""GET and HEAD of an object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from trainshed.api.obs.conditions import check_read
from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.exchange import UnsatisfiableRange, parse_range
from trainshed.api.obs.object_headers import object_headers, override_headers
from trainshed.api.obs.signatures.claim import read_http_date
from trainshed.api.obs.visit import Visit
from trainshed.model.errors import NotFound
from trainshed.model.names import check_key
from trainshed.store.object_store import Bucket, ObjectInfo

__all__ = ["get_object", "head_object"]


async def get_object(visit: Visit) -> None:
    """Send an object, or a range or a part of it."""
    version = visit.query.get("versionId", "")

    def begin() -> tuple[int, dict[str, str], BinaryIO, int]:
        bucket = visit.readable_object(visit.bucket, visit.key, version)
        check_key(visit.key)
        try:
            info, file = visit.store.open_object(visit.bucket, visit.key, version)
        except NotFound as error:
            _tell_marker(visit, bucket, error)
            raise
        try:
            status, headers, start, length = _plan(visit, info, _piece_sizes(visit, info))
            if start:
                file.seek(start)
            return status, headers, file, length
        except BaseException:
            file.close()
            raise

    # Sent from the open file, not by path: the object may be overwritten before the server opened the path.
    status, headers, file, length = await visit.do(begin, is_prompt=True)
    try:
        await visit.exchange.answer_file(status, visit.dress(headers), file, length)
    finally:
        file.close()


async def head_object(visit: Visit) -> None:
    """Send what is known of an object."""
    version = visit.query.get("versionId", "")

    def describe() -> tuple[ObjectInfo, Sequence[int]]:
        bucket = visit.readable_object(visit.bucket, visit.key, version)
        check_key(visit.key)
        try:
            info = visit.store.info(visit.bucket, visit.key, version)
        except NotFound as error:
            _tell_marker(visit, bucket, error)
            raise
        return info, _piece_sizes(visit, info)

    info, pieces = await visit.do(describe, is_prompt=True)
    status, headers, _, length = _plan(visit, info, pieces)
    await visit.answer(status, {**headers, "content-length": str(length)})


def _tell_marker(visit: Visit, bucket: Bucket, error: NotFound) -> None:
    """Have the refusal say so, if the object is not missing but was removed where versions are kept."""
    is_marker = error.code == "is_delete_marker"
    if is_marker or (bucket.versioning and error.code == "no_such_key" and _is_removed(visit)):
        visit.extra_headers[f"{visit.prefix}delete-marker"] = "true"


def _is_removed(visit: Visit) -> bool:
    page = visit.store.list_versions(visit.bucket, visit.key, limit=1)
    return any(found.is_delete_marker and found.info.key == visit.key for found in page.versions)


def _piece_sizes(visit: Visit, info: ObjectInfo) -> Sequence[int]:
    """The sizes of the object's parts, for those who ask for one."""
    if "partNumber" not in visit.query:
        return ()
    return visit.store.piece_sizes(info.bucket, info.key, visit.query.get("versionId", "")) or (info.size,)


def _plan(visit: Visit, info: ObjectInfo, pieces: Sequence[int]) -> tuple[int, dict[str, str], int, int]:
    """Status, headers, first byte and length of the answer."""
    if visit.option("server-side-encryption-customer-algorithm"):
        raise S3Error("InvalidRequest", "The encryption parameters are not applicable to this object.")
    check_read(visit.headers, info)
    span = None
    if pieces:
        if "range" in visit.headers:
            raise S3Error("InvalidRequest", "Cannot specify both Range header and partNumber query parameter")
        span = _part_span(visit, pieces)
    elif _applies_range(visit, info):
        try:
            span = parse_range(visit.headers.get("range", ""), info.size)
        except UnsatisfiableRange:
            raise S3Error(
                "InvalidRange",
                "The requested range is not satisfiable",
                ActualObjectSize=str(info.size),
                RangeRequested=visit.headers.get("range", "")[:100],
            ) from None
    headers = override_headers(visit, object_headers(visit, info, is_whole=span is None))
    if len(pieces) > 1:
        headers["x-amz-mp-parts-count"] = str(len(pieces))
    if span is None:
        return 200, headers, 0, info.size
    start, length = span
    headers["content-range"] = f"bytes {start}-{start + length - 1}/{info.size}"
    return 206, headers, start, length


def _part_span(visit: Visit, pieces: Sequence[int]) -> tuple[int, int] | None:
    number = visit.query.get("partNumber", "")
    if not (number.isascii() and number.isdigit() and len(number) < 6 and int(number) >= 1):
        raise S3Error("InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive")
    if int(number) > len(pieces):
        raise S3Error("InvalidPartNumber", "The requested partnumber is not satisfiable")
    length = pieces[int(number) - 1]
    return (sum(pieces[: int(number) - 1]), length) if length else None


def _applies_range(visit: Visit, info: ObjectInfo) -> bool:
    """If-Range: a client that has half of another version gets the whole of this one."""
    wanted = visit.headers.get("if-range", "").strip()
    if not wanted:
        return True
    moment = read_http_date(wanted)
    return wanted.strip('"') == info.etag or (moment is not None and int(info.modified_at) <= moment)
