"""Uploads in parts: begin one, send parts, copy parts."""

from __future__ import annotations

import hashlib
from typing import Any

from s3_table.case import Case
from s3_table.multipart_steps import NONE, abort, list_sizes, nothing, send_part
from s3_table.stage import FOREIGN, MISSING, SHARED, Stage, uploading

__all__ = ["CASES"]


def source(stage: Stage) -> None:
    """An upload, and an object to copy parts from."""
    uploading(stage)
    stage.dev.put_object(Key=stage.there, Body=b"0123456789")


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


def _raw_part(number: str) -> Any:
    return lambda s: s.raw(
        "PUT", s.path(s.key), query=[("partNumber", number), ("uploadId", s.notes["upload"])], body=b"x"
    )


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
        then=nothing,
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
        "a checksum that is unknown",
        lambda s: s.dev.create_multipart_upload(Key=s.key, ChecksumAlgorithm="CRC7"),
        400,
        "InvalidRequest",
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
        lambda s: send_part(s, 2, b"two"),
        before=(uploading,),
        then=lambda s, a: (
            (a["ETag"], list_sizes(s)),
            (f'"{hashlib.md5(b"two").hexdigest()}"', [(1, 8), (2, 3)]),
        ),
    ),
    Case(
        "UploadPart",
        "again, in the place of the first",
        lambda s: send_part(s, 1, b"other"),
        before=(uploading,),
        then=lambda s, a: (list_sizes(s), [(1, 5)]),
    ),
    Case(
        "UploadPart",
        "the last that there may be",
        lambda s: send_part(s, 10_000, b"x"),
        before=(uploading,),
        then=lambda s, a: (list_sizes(s), [(1, 8), (10_000, 1)]),
    ),
    Case(
        "UploadPart",
        "an empty one",
        lambda s: send_part(s, 2, b""),
        before=(uploading,),
        then=lambda s, a: (list_sizes(s), [(1, 8), (2, 0)]),
    ),
    Case(
        "UploadPart",
        "number 0",
        _raw_part("0"),
        400,
        "InvalidArgument",
        before=(uploading,),
        then=lambda s, a: (list_sizes(s), [(1, 8)]),
    ),
    Case(
        "UploadPart",
        "number 10,001",
        _raw_part("10001"),
        400,
        "InvalidArgument",
        before=(uploading,),
        then=lambda s, a: (list_sizes(s), [(1, 8)]),
    ),
    Case(
        "UploadPart", "a number that is none", _raw_part("one"), 400, "InvalidArgument", before=(uploading,)
    ),
    Case(
        "UploadPart",
        "a wrong Content-MD5",
        lambda s: send_part(s, 2, b"two", ContentMD5="AAAAAAAAAAAAAAAAAAAAAA=="),
        400,
        "BadDigest",
        before=(uploading,),
        then=lambda s, a: (list_sizes(s), [(1, 8)]),
    ),
    Case(
        "UploadPart",
        "no Content-MD5",
        lambda s: send_part(s, 2, b"two", ContentMD5="no"),
        400,
        "InvalidDigest",
        before=(uploading,),
    ),
    Case(
        "UploadPart",
        "a wrong checksum",
        lambda s: send_part(s, 1, b"two", ChecksumCRC32="AAAAAA=="),
        400,
        "BadDigest",
        before=(uploading,),
        then=lambda s, a: (list_sizes(s), [(1, 8)]),
    ),
    Case(
        "UploadPart",
        "a missing upload",
        lambda s: send_part(s, 1, b"x", **NONE),
        404,
        "NoSuchUpload",
        before=(uploading,),
    ),
    Case(
        "UploadPart",
        "an upload of another key",
        lambda s: send_part(s, 1, b"x", Key=s.k("other")),
        404,
        "NoSuchUpload",
        before=(uploading,),
    ),
    Case(
        "UploadPart",
        "an upload that was aborted",
        lambda s: (abort(s), send_part(s, 1, b"x"))[1],
        404,
        "NoSuchUpload",
        before=(uploading,),
        is_harmless=False,
    ),
    Case(
        "UploadPart",
        "a missing bucket",
        lambda s: send_part(s, 1, b"x", Bucket=MISSING),
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
        then=lambda s, a: (list_sizes(s), [(1, 8)]),
    ),
    Case(
        "UploadPart",
        "anonymous",
        lambda s: s.nobody.upload_part(Key=s.key, UploadId=s.notes["upload"], PartNumber=1, Body=b"x"),
        403,
        "AccessDenied",
        before=(uploading,),
        then=lambda s, a: (list_sizes(s), [(1, 8)]),
    ),
    Case(
        "UploadPartCopy",
        "a whole object",
        _copy(),
        before=(source,),
        then=lambda s, a: (
            (a["CopyPartResult"]["ETag"], list_sizes(s)),
            (f'"{hashlib.md5(b"0123456789").hexdigest()}"', [(1, 8), (2, 10)]),
        ),
    ),
    Case(
        "UploadPartCopy",
        "a range",
        _copy(CopySourceRange="bytes=2-4"),
        before=(source,),
        then=lambda s, a: (list_sizes(s), [(1, 8), (2, 3)]),
    ),
    Case(
        "UploadPartCopy",
        "a range beyond the end",
        _copy(CopySourceRange="bytes=2-10"),
        416,
        "InvalidRange",
        before=(source,),
        then=lambda s, a: (list_sizes(s), [(1, 8)]),
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
        then=lambda s, a: (list_sizes(s), [(1, 8)]),
    ),
    Case(
        "UploadPartCopy",
        "a source without a key",
        _copy(CopySource=SHARED),
        400,
        "InvalidArgument",
        before=(source,),
    ),
    Case("UploadPartCopy", "a missing upload", _copy(**NONE), 404, "NoSuchUpload", before=(source,)),
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
]
