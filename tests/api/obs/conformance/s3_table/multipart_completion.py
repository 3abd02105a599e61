"""Uploads in parts: complete them, and what became of it."""

from __future__ import annotations

import hashlib
from typing import Any

from s3_table.case import Answer, Case
from s3_table.multipart_steps import BIG, MIB, NONE, abort, list_sizes, nothing, send_part, two_parts
from s3_table.stage import Stage, uploading

__all__ = ["CASES"]


def completed(stage: Stage) -> None:
    """An object that came in two parts."""
    two_parts(stage)
    stage.notes["etag"] = _finish(stage, stage.notes["parts"])["ETag"]


def _finish(stage: Stage, parts: list[dict[str, Any]], **more: Any) -> Answer:
    return stage.dev.complete_multipart_upload(
        **{
            "Key": stage.key,
            "UploadId": stage.notes["upload"],
            "MultipartUpload": {"Parts": parts},
            **more,
        }
    )


def _complete(change: Any = None, **more: Any) -> Any:
    return lambda s: _finish(s, change(s.notes["parts"]) if change else s.notes["parts"], **more)


def _still(s: Stage, a: Answer) -> tuple[object, object]:
    """The object is not there, and the upload is, with its parts."""
    return (s.dev.head_object(Key=s.key).status, [number for number, _ in list_sizes(s)]), (404, [1, 2])


def _etag(*bodies: bytes) -> str:
    digests = b"".join(hashlib.md5(body).digest() for body in bodies)
    return f'"{hashlib.md5(digests).hexdigest()}-{len(bodies)}"'


def _document(body: bytes) -> Any:
    return lambda s: s.raw("POST", s.path(s.key), query=[("uploadId", s.notes["upload"])], body=body)


_WRONG = '"00000000000000000000000000000000"'


CASES = [
    Case(
        "CompleteMultipartUpload",
        "all parts",
        _complete(),
        before=(two_parts,),
        then=lambda s, a: ((a["ETag"], s.read(s.key)), (_etag(BIG, b"end"), BIG + b"end")),
    ),
    Case(
        "CompleteMultipartUpload",
        "metadata and type of its beginning",
        _complete(),
        before=(two_parts,),
        then=lambda s, a: (
            (lambda h: (h["Metadata"], h["ContentType"]))(s.dev.head_object(Key=s.key)),
            ({"a": "1"}, "text/plain"),
        ),
    ),
    Case(
        "CompleteMultipartUpload",
        "some of the parts",
        _complete(lambda parts: parts[1:]),
        before=(two_parts,),
        then=lambda s, a: (s.read(s.key), b"end"),
    ),
    Case(
        "CompleteMultipartUpload",
        "the upload is gone afterwards",
        _complete(),
        before=(two_parts,),
        then=lambda s, a: (s.dev.list_parts(Key=s.key, UploadId=s.notes["upload"]).code, "NoSuchUpload"),
    ),
    Case(
        "CompleteMultipartUpload",
        "a part that was sent twice counts once",
        lambda s: (
            send_part(s, 2, b"new"),
            _finish(
                s, [s.notes["parts"][0], {"PartNumber": 2, "ETag": f'"{hashlib.md5(b"new").hexdigest()}"'}]
            ),
        )[1],
        before=(two_parts,),
        then=lambda s, a: (s.read(s.key)[-3:], b"new"),
    ),
    Case(
        "CompleteMultipartUpload",
        "the ETag of a part that was replaced",
        lambda s: (send_part(s, 2, b"new"), _complete()(s))[1],
        400,
        "InvalidPart",
        before=(two_parts,),
        then=_still,
        is_harmless=False,
    ),
    Case(
        "CompleteMultipartUpload",
        "ETags without their quotes",
        _complete(lambda parts: [{**p, "ETag": p["ETag"].strip('"')} for p in parts]),
        before=(two_parts,),
        then=lambda s, a: (a["ETag"], _etag(BIG, b"end")),
    ),
    Case(
        "CompleteMultipartUpload",
        "a small part before the last",
        lambda s: _finish(
            s,
            [
                {"PartNumber": 1, "ETag": s.notes["part"]},
                {"PartNumber": 2, "ETag": send_part(s, 2, b"two")["ETag"]},
            ],
        ),
        400,
        "EntityTooSmall",
        before=(uploading,),
        then=_still,
    ),
    Case(
        "CompleteMultipartUpload",
        "parts in another order",
        _complete(lambda parts: parts[::-1]),
        400,
        "InvalidPartOrder",
        before=(two_parts,),
        then=_still,
    ),
    Case(
        "CompleteMultipartUpload",
        "a part twice",
        _complete(lambda parts: [parts[0], parts[0]]),
        400,
        "InvalidPartOrder",
        before=(two_parts,),
        then=_still,
    ),
    Case(
        "CompleteMultipartUpload",
        "a part that is missing",
        _complete(lambda parts: [*parts, {"PartNumber": 3, "ETag": _WRONG}]),
        400,
        "InvalidPart",
        before=(two_parts,),
        then=_still,
    ),
    Case(
        "CompleteMultipartUpload",
        "a wrong ETag",
        _complete(lambda parts: [parts[0], {"PartNumber": 2, "ETag": _WRONG}]),
        400,
        "InvalidPart",
        before=(two_parts,),
        then=_still,
    ),
    Case(
        "CompleteMultipartUpload",
        "no parts",
        _document(b"<CompleteMultipartUpload/>"),
        400,
        "MalformedXML",
        before=(two_parts,),
        then=_still,
    ),
    Case(
        "CompleteMultipartUpload",
        "no document",
        _document(b""),
        400,
        "MalformedXML",
        before=(two_parts,),
        then=_still,
    ),
    Case(
        "CompleteMultipartUpload",
        "a part without a number",
        _document(b"<CompleteMultipartUpload><Part><ETag>x</ETag></Part></CompleteMultipartUpload>"),
        400,
        "MalformedXML",
        before=(two_parts,),
        then=_still,
    ),
    Case(
        "CompleteMultipartUpload",
        "a missing upload",
        _complete(**NONE),
        404,
        "NoSuchUpload",
        before=(two_parts,),
        then=_still,
    ),
    Case(
        "CompleteMultipartUpload",
        "an upload that was aborted",
        lambda s: (abort(s), _complete()(s))[1],
        404,
        "NoSuchUpload",
        before=(two_parts,),
        then=nothing,
        is_harmless=False,
    ),
    Case(
        "CompleteMultipartUpload",
        "If-None-Match: * where something is",
        lambda s: (s.dev.put_object(Key=s.key, Body=b"old"), _complete(IfNoneMatch="*")(s))[1],
        412,
        "PreconditionFailed",
        before=(two_parts,),
        then=lambda s, a: (s.read(s.key), b"old"),
        is_harmless=False,
    ),
    Case(
        "CompleteMultipartUpload",
        "If-None-Match: * where nothing is",
        _complete(IfNoneMatch="*"),
        before=(two_parts,),
        then=lambda s, a: (a["ETag"], _etag(BIG, b"end")),
    ),
    Case(
        "CompleteMultipartUpload",
        "one who may only read",
        lambda s: s.viewer.complete_multipart_upload(
            Key=s.key, UploadId=s.notes["upload"], MultipartUpload={"Parts": s.notes["parts"]}
        ),
        403,
        "AccessDenied",
        before=(two_parts,),
        then=_still,
    ),
    Case(
        "GetObject",
        "a part of what came in parts",
        lambda s: s.dev.get_object(Key=s.key, PartNumber=2),
        206,
        before=(completed,),
        then=lambda s, a: ((a.body, a.get("PartsCount")), (b"end", 2)),
    ),
    Case(
        "GetObject",
        "a part that is missing",
        lambda s: s.dev.get_object(Key=s.key, PartNumber=3),
        416,
        "InvalidPartNumber",
        before=(completed,),
    ),
    Case(
        "GetObject",
        "a range across parts",
        lambda s: s.dev.get_object(Key=s.key, Range=f"bytes={5 * MIB - 2}-{5 * MIB}"),
        206,
        before=(completed,),
        then=lambda s, a: (a.body, b"xxe"),
    ),
    Case(
        "HeadObject",
        "a part of what came in parts",
        lambda s: s.dev.head_object(Key=s.key, PartNumber=1),
        206,
        before=(completed,),
        then=lambda s, a: ((a["ContentLength"], a["PartsCount"], a["ETag"]), (5 * MIB, 2, s.notes["etag"])),
    ),
]
