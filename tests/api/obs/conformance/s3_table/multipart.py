"""Uploads in parts: begin, send, copy, complete, abort, and what is under way."""

from __future__ import annotations

import hashlib
from typing import Any

from s3_table.case import Answer, Case
from s3_table.stage import FOREIGN, MISSING, SHARED, Stage, own, uploading

__all__ = ["CASES"]

_MIB = 1 << 20
_BIG = b"x" * (5 * _MIB)


def two_parts(stage: Stage) -> None:
    """An upload of two parts, the first as small as it may be."""
    stage.notes["upload"] = stage.dev.create_multipart_upload(
        Key=stage.key, Metadata={"a": "1"}, ContentType="text/plain"
    )["UploadId"]
    stage.notes["parts"] = [
        {"PartNumber": number, "ETag": _part(stage, number, body)["ETag"]}
        for number, body in ((1, _BIG), (2, b"end"))
    ]


def completed(stage: Stage) -> None:
    """An object that came in two parts."""
    two_parts(stage)
    stage.notes["etag"] = _finish(stage, stage.notes["parts"])["ETag"]


def source(stage: Stage) -> None:
    """An upload, and an object to copy parts from."""
    uploading(stage)
    stage.dev.put_object(Key=stage.there, Body=b"0123456789")


def _part(stage: Stage, number: int, body: bytes, **more: Any) -> Answer:
    return stage.dev.upload_part(
        **{"Key": stage.key, "UploadId": stage.notes["upload"], "PartNumber": number, "Body": body, **more}
    )


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


def _copy(**more: Any) -> Any:
    return lambda s: s.dev.upload_part_copy(
        **{
            "Key": s.key,
            "UploadId": s.notes["upload"],
            "PartNumber": 2,
            "CopySource": f"{s.bucket}/{s.there}",
            **more,
        }
    )


def _parts(stage: Stage, **more: Any) -> list[tuple[int, int]]:
    page = stage.dev.list_parts(Key=stage.key, UploadId=stage.notes["upload"], **more)
    return [(part["PartNumber"], part["Size"]) for part in page.get("Parts", [])]


def _nothing(s: Stage, a: Answer) -> tuple[object, object]:
    return s.dev.head_object(Key=s.key).status, 404


def _still(s: Stage, a: Answer) -> tuple[object, object]:
    """The object is not there, and the upload is, with its parts."""
    return (s.dev.head_object(Key=s.key).status, [number for number, _ in _parts(s)]), (404, [1, 2])


def _etag(*bodies: bytes) -> str:
    digests = b"".join(hashlib.md5(body).digest() for body in bodies)
    return f'"{hashlib.md5(digests).hexdigest()}-{len(bodies)}"'


def _raw_part(number: str) -> Any:
    return lambda s: s.raw(
        "PUT", s.path(s.key), query=[("partNumber", number), ("uploadId", s.notes["upload"])], body=b"x"
    )


def _document(body: bytes) -> Any:
    return lambda s: s.raw("POST", s.path(s.key), query=[("uploadId", s.notes["upload"])], body=body)


def many_uploads(stage: Stage) -> None:
    """Four uploads in a bucket of their own, two of them of one key."""
    own(stage)
    stage.notes["uploads"] = [
        (key, stage.dev.create_multipart_upload(Key=key)["UploadId"]) for key in ("a/1", "a/2", "b", "b")
    ]


def _uploads(answer: Answer) -> list[str]:
    return [entry["Key"] for entry in answer.get("Uploads", [])]


def _upload_pages(stage: Stage) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    where: dict[str, str] = {}
    for _ in range(9):
        page = stage.dev.list_multipart_uploads(MaxUploads=1, **where)
        found += [(entry["Key"], entry["UploadId"]) for entry in page.get("Uploads", [])]
        if not page["IsTruncated"]:
            break
        where = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}
    return found


_NONE = {"UploadId": "00000000000000000000000000000000"}
_WRONG = '"00000000000000000000000000000000"'

CASES = [
    Case(
        "CreateMultipartUpload",
        "a new one",
        lambda s: s.dev.create_multipart_upload(Key=s.key),
        then=lambda s, a: ((a["Bucket"], a["Key"], bool(a["UploadId"])), (s.bucket, s.key, True)),
    ),
    Case(
        "CreateMultipartUpload",
        "two of one key",
        lambda s: s.dev.create_multipart_upload(Key=s.key),
        before=(uploading,),
        then=lambda s, a: (a["UploadId"] == s.notes["upload"], False),
    ),
    Case(
        "CreateMultipartUpload",
        "nothing is visible yet",
        lambda s: s.dev.create_multipart_upload(Key=s.key),
        then=_nothing,
    ),
    Case(
        "CreateMultipartUpload",
        "more than 2 KB of metadata",
        lambda s: s.dev.create_multipart_upload(Key=s.key, Metadata={"a": "x" * 2048}),
        400,
        "MetadataTooLarge",
    ),
    Case(
        "CreateMultipartUpload",
        "a storage class that is unknown",
        lambda s: s.dev.create_multipart_upload(Key=s.key, StorageClass="FAST"),
        400,
        "InvalidStorageClass",
    ),
    Case(
        "CreateMultipartUpload",
        "a missing bucket",
        lambda s: s.dev.create_multipart_upload(Bucket=MISSING, Key="x"),
        404,
        "NoSuchBucket",
    ),
    Case(
        "CreateMultipartUpload",
        "somebody else's bucket",
        lambda s: s.dev.create_multipart_upload(Bucket=FOREIGN, Key="x"),
        403,
        "AccessDenied",
    ),
    Case(
        "CreateMultipartUpload",
        "one who may only read",
        lambda s: s.viewer.create_multipart_upload(Key=s.key),
        403,
        "AccessDenied",
    ),
    Case(
        "CreateMultipartUpload",
        "anonymous",
        lambda s: s.nobody.create_multipart_upload(Key=s.key),
        403,
        "AccessDenied",
    ),
    Case(
        "UploadPart",
        "one, and its MD5",
        lambda s: _part(s, 2, b"two"),
        before=(uploading,),
        then=lambda s, a: (
            (a["ETag"], _parts(s)),
            (f'"{hashlib.md5(b"two").hexdigest()}"', [(1, 8), (2, 3)]),
        ),
    ),
    Case(
        "UploadPart",
        "again, in the place of the first",
        lambda s: _part(s, 1, b"other"),
        before=(uploading,),
        then=lambda s, a: (_parts(s), [(1, 5)]),
    ),
    Case(
        "UploadPart",
        "the last that there may be",
        lambda s: _part(s, 10_000, b"x"),
        before=(uploading,),
        then=lambda s, a: (_parts(s), [(1, 8), (10_000, 1)]),
    ),
    Case(
        "UploadPart",
        "an empty one",
        lambda s: _part(s, 2, b""),
        before=(uploading,),
        then=lambda s, a: (_parts(s), [(1, 8), (2, 0)]),
    ),
    Case(
        "UploadPart",
        "number 0",
        _raw_part("0"),
        400,
        "InvalidArgument",
        before=(uploading,),
        then=lambda s, a: (_parts(s), [(1, 8)]),
    ),
    Case(
        "UploadPart",
        "number 10,001",
        _raw_part("10001"),
        400,
        "InvalidArgument",
        before=(uploading,),
        then=lambda s, a: (_parts(s), [(1, 8)]),
    ),
    Case(
        "UploadPart", "a number that is none", _raw_part("one"), 400, "InvalidArgument", before=(uploading,)
    ),
    Case(
        "UploadPart",
        "a wrong Content-MD5",
        lambda s: _part(s, 2, b"two", ContentMD5="AAAAAAAAAAAAAAAAAAAAAA=="),
        400,
        "BadDigest",
        before=(uploading,),
        then=lambda s, a: (_parts(s), [(1, 8)]),
    ),
    Case(
        "UploadPart",
        "no Content-MD5",
        lambda s: _part(s, 2, b"two", ContentMD5="no"),
        400,
        "InvalidDigest",
        before=(uploading,),
    ),
    Case(
        "UploadPart",
        "a wrong checksum",
        lambda s: _part(s, 1, b"two", ChecksumCRC32="AAAAAA=="),
        400,
        "BadDigest",
        before=(uploading,),
        then=lambda s, a: (_parts(s), [(1, 8)]),
    ),
    Case(
        "UploadPart",
        "a missing upload",
        lambda s: _part(s, 1, b"x", **_NONE),
        404,
        "NoSuchUpload",
        before=(uploading,),
    ),
    Case(
        "UploadPart",
        "an upload of another key",
        lambda s: _part(s, 1, b"x", Key=s.k("other")),
        404,
        "NoSuchUpload",
        before=(uploading,),
    ),
    Case(
        "UploadPart",
        "an upload that was aborted",
        lambda s: (_abort(s), _part(s, 1, b"x"))[1],
        404,
        "NoSuchUpload",
        before=(uploading,),
        is_harmless=False,
    ),
    Case(
        "UploadPart",
        "a missing bucket",
        lambda s: _part(s, 1, b"x", Bucket=MISSING),
        404,
        "NoSuchBucket",
        before=(uploading,),
    ),
    Case(
        "UploadPart",
        "one who may only read",
        lambda s: s.viewer.upload_part(Key=s.key, UploadId=s.notes["upload"], PartNumber=1, Body=b"x"),
        403,
        "AccessDenied",
        before=(uploading,),
        then=lambda s, a: (_parts(s), [(1, 8)]),
    ),
    Case(
        "UploadPart",
        "anonymous",
        lambda s: s.nobody.upload_part(Key=s.key, UploadId=s.notes["upload"], PartNumber=1, Body=b"x"),
        403,
        "AccessDenied",
        before=(uploading,),
        then=lambda s, a: (_parts(s), [(1, 8)]),
    ),
    Case(
        "UploadPartCopy",
        "a whole object",
        _copy(),
        before=(source,),
        then=lambda s, a: (
            (a["CopyPartResult"]["ETag"], _parts(s)),
            (f'"{hashlib.md5(b"0123456789").hexdigest()}"', [(1, 8), (2, 10)]),
        ),
    ),
    Case(
        "UploadPartCopy",
        "a range",
        _copy(CopySourceRange="bytes=2-4"),
        before=(source,),
        then=lambda s, a: (_parts(s), [(1, 8), (2, 3)]),
    ),
    Case(
        "UploadPartCopy",
        "a range beyond the end",
        _copy(CopySourceRange="bytes=2-10"),
        416,
        "InvalidRange",
        before=(source,),
        then=lambda s, a: (_parts(s), [(1, 8)]),
    ),
    Case(
        "UploadPartCopy",
        "a range that is backwards",
        _copy(CopySourceRange="bytes=4-2"),
        400,
        "InvalidArgument",
        before=(source,),
    ),
    Case(
        "UploadPartCopy",
        "a range without an end",
        _copy(CopySourceRange="bytes=0-"),
        400,
        "InvalidArgument",
        before=(source,),
    ),
    Case(
        "UploadPartCopy",
        "a missing key",
        _copy(CopySource=f"{SHARED}/none"),
        404,
        "NoSuchKey",
        before=(source,),
    ),
    Case(
        "UploadPartCopy",
        "a missing source bucket",
        _copy(CopySource=f"{MISSING}/none"),
        404,
        "NoSuchBucket",
        before=(source,),
    ),
    Case(
        "UploadPartCopy",
        "somebody else's object",
        _copy(CopySource=f"{FOREIGN}/secret"),
        403,
        "AccessDenied",
        before=(source,),
        then=lambda s, a: (_parts(s), [(1, 8)]),
    ),
    Case(
        "UploadPartCopy",
        "a source without a key",
        _copy(CopySource=SHARED),
        400,
        "InvalidArgument",
        before=(source,),
    ),
    Case("UploadPartCopy", "a missing upload", _copy(**_NONE), 404, "NoSuchUpload", before=(source,)),
    Case("UploadPartCopy", "number 0", _copy(PartNumber=0), 400, "InvalidArgument", before=(source,)),
    Case(
        "UploadPartCopy",
        "if-match of another",
        _copy(CopySourceIfMatch='"0"'),
        412,
        "PreconditionFailed",
        before=(source,),
    ),
    Case("UploadPartCopy", "if-none-match of another", _copy(CopySourceIfNoneMatch='"0"'), before=(source,)),
    Case(
        "CompleteMultipartUpload",
        "all parts",
        _complete(),
        before=(two_parts,),
        then=lambda s, a: ((a["ETag"], s.read(s.key)), (_etag(_BIG, b"end"), _BIG + b"end")),
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
            _part(s, 2, b"new"),
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
        lambda s: (_part(s, 2, b"new"), _complete()(s))[1],
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
        then=lambda s, a: (a["ETag"], _etag(_BIG, b"end")),
    ),
    Case(
        "CompleteMultipartUpload",
        "a small part before the last",
        lambda s: _finish(
            s,
            [
                {"PartNumber": 1, "ETag": s.notes["part"]},
                {"PartNumber": 2, "ETag": _part(s, 2, b"two")["ETag"]},
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
        _complete(**_NONE),
        404,
        "NoSuchUpload",
        before=(two_parts,),
        then=_still,
    ),
    Case(
        "CompleteMultipartUpload",
        "an upload that was aborted",
        lambda s: (_abort(s), _complete()(s))[1],
        404,
        "NoSuchUpload",
        before=(two_parts,),
        then=_nothing,
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
        then=lambda s, a: (a["ETag"], _etag(_BIG, b"end")),
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
        lambda s: s.dev.get_object(Key=s.key, Range=f"bytes={5 * _MIB - 2}-{5 * _MIB}"),
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
        then=lambda s, a: ((a["ContentLength"], a["PartsCount"], a["ETag"]), (5 * _MIB, 2, s.notes["etag"])),
    ),
    Case(
        "AbortMultipartUpload",
        "one that is under way",
        lambda s: _abort(s),
        204,
        before=(uploading,),
        then=lambda s, a: (s.dev.list_parts(Key=s.key, UploadId=s.notes["upload"]).code, "NoSuchUpload"),
    ),
    Case(
        "AbortMultipartUpload",
        "a missing one",
        lambda s: _abort(s, **_NONE),
        404,
        "NoSuchUpload",
        before=(uploading,),
    ),
    Case(
        "AbortMultipartUpload",
        "of another key",
        lambda s: _abort(s, Key=s.k("other")),
        404,
        "NoSuchUpload",
        before=(uploading,),
    ),
    Case(
        "AbortMultipartUpload",
        "a missing bucket",
        lambda s: _abort(s, Bucket=MISSING),
        404,
        "NoSuchBucket",
        before=(uploading,),
    ),
    Case(
        "AbortMultipartUpload",
        "one who may only read",
        lambda s: s.viewer.abort_multipart_upload(Key=s.key, UploadId=s.notes["upload"]),
        403,
        "AccessDenied",
        before=(uploading,),
    ),
    Case(
        "AbortMultipartUpload",
        "anonymous",
        lambda s: s.nobody.abort_multipart_upload(Key=s.key, UploadId=s.notes["upload"]),
        403,
        "AccessDenied",
        before=(uploading,),
    ),
    Case(
        "ListParts",
        "all",
        lambda s: s.dev.list_parts(Key=s.key, UploadId=s.notes["upload"]),
        before=(two_parts,),
        then=lambda s, a: (
            [(p["PartNumber"], p["Size"], p["ETag"]) for p in a["Parts"]],
            [(1, 5 * _MIB, s.notes["parts"][0]["ETag"]), (2, 3, s.notes["parts"][1]["ETag"])],
        ),
    ),
    Case(
        "ListParts",
        "a page",
        lambda s: s.dev.list_parts(Key=s.key, UploadId=s.notes["upload"], MaxParts=1),
        before=(two_parts,),
        then=lambda s, a: ((len(a["Parts"]), a["IsTruncated"], a["NextPartNumberMarker"]), (1, True, 1)),
    ),
    Case(
        "ListParts",
        "after a part",
        lambda s: s.dev.list_parts(Key=s.key, UploadId=s.notes["upload"], PartNumberMarker=1),
        before=(two_parts,),
        then=lambda s, a: (([p["PartNumber"] for p in a["Parts"]], a["IsTruncated"]), ([2], False)),
    ),
    Case(
        "ListParts",
        "max-parts that is no number",
        lambda s: s.raw("GET", s.path(s.key), query=[("max-parts", "x"), ("uploadId", s.notes["upload"])]),
        400,
        "InvalidArgument",
        before=(uploading,),
    ),
    Case(
        "ListParts",
        "max-parts below zero",
        lambda s: s.raw("GET", s.path(s.key), query=[("max-parts", "-1"), ("uploadId", s.notes["upload"])]),
        400,
        "InvalidArgument",
        before=(uploading,),
    ),
    Case(
        "ListParts", "a missing upload", lambda s: s.dev.list_parts(Key=s.key, **_NONE), 404, "NoSuchUpload"
    ),
    Case(
        "ListParts",
        "a missing bucket",
        lambda s: s.dev.list_parts(Bucket=MISSING, Key=s.key, **_NONE),
        404,
        "NoSuchBucket",
    ),
    Case(
        "ListParts",
        "anonymous",
        lambda s: s.nobody.list_parts(Key=s.key, UploadId=s.notes["upload"]),
        403,
        "AccessDenied",
        before=(uploading,),
    ),
    Case(
        "ListMultipartUploads",
        "all, in the order of keys and time",
        lambda s: s.dev.list_multipart_uploads(),
        before=(many_uploads,),
        then=lambda s, a: ([(e["Key"], e["UploadId"]) for e in a["Uploads"]], s.notes["uploads"]),
    ),
    Case(
        "ListMultipartUploads",
        "below a prefix",
        lambda s: s.dev.list_multipart_uploads(Prefix="a/"),
        before=(many_uploads,),
        then=lambda s, a: (_uploads(a), ["a/1", "a/2"]),
    ),
    Case(
        "ListMultipartUploads",
        "folders",
        lambda s: s.dev.list_multipart_uploads(Delimiter="/"),
        before=(many_uploads,),
        then=lambda s, a: ((_uploads(a), a["CommonPrefixes"]), (["b", "b"], [{"Prefix": "a/"}])),
    ),
    Case(
        "ListMultipartUploads",
        "page by page",
        lambda s: s.dev.list_multipart_uploads(),
        before=(many_uploads,),
        then=lambda s, a: (_upload_pages(s), s.notes["uploads"]),
    ),
    Case(
        "ListMultipartUploads",
        "after a key",
        lambda s: s.dev.list_multipart_uploads(KeyMarker="a/1"),
        before=(many_uploads,),
        then=lambda s, a: (_uploads(a), ["a/2", "b", "b"]),
    ),
    Case(
        "ListMultipartUploads",
        "none",
        lambda s: s.dev.list_multipart_uploads(),
        before=(own,),
        then=lambda s, a: (a.get("Uploads"), None),
    ),
    Case(
        "ListMultipartUploads",
        "max-uploads that is no number",
        lambda s: s.raw("GET", f"/{s.bucket}", query=[("max-uploads", "x"), ("uploads", "")]),
        400,
        "InvalidArgument",
    ),
    Case(
        "ListMultipartUploads",
        "an encoding that is unknown",
        lambda s: s.raw("GET", f"/{s.bucket}", query=[("encoding-type", "x"), ("uploads", "")]),
        400,
        "InvalidArgument",
    ),
    Case(
        "ListMultipartUploads",
        "a missing bucket",
        lambda s: s.dev.list_multipart_uploads(Bucket=MISSING),
        404,
        "NoSuchBucket",
    ),
    Case(
        "ListMultipartUploads",
        "somebody else's bucket",
        lambda s: s.dev.list_multipart_uploads(Bucket=FOREIGN),
        403,
        "AccessDenied",
    ),
    Case(
        "ListMultipartUploads", "anonymous", lambda s: s.nobody.list_multipart_uploads(), 403, "AccessDenied"
    ),
]


def _abort(stage: Stage, **more: Any) -> Answer:
    return stage.dev.abort_multipart_upload(**{"Key": stage.key, "UploadId": stage.notes["upload"], **more})
