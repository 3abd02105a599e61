"""PutObject: bytes, metadata, checksums, conditions, limits."""

from __future__ import annotations

import base64
import hashlib
import zlib
from typing import Any

import google_crc32c

from s3_table.case import Answer, Case
from s3_table.stage import FOREIGN, MISSING, Stage, there

__all__ = ["CASES", "DIGESTS"]

DATA = b"the bytes of an object"


def _encode(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def _crc64nvme(data: bytes) -> bytes:
    """Bit by bit, as its definition reads."""
    value = 0xFFFFFFFFFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x9A6C9329AC4BC9B5 if value & 1 else 0)
    return (value ^ 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big")


DIGESTS = {
    "CRC32": _encode(zlib.crc32(DATA).to_bytes(4, "big")),
    "CRC32C": _encode(google_crc32c.value(DATA).to_bytes(4, "big")),
    "SHA1": _encode(hashlib.sha1(DATA).digest()),
    "SHA256": _encode(hashlib.sha256(DATA).digest()),
    "CRC64NVME": _encode(_crc64nvme(DATA)),
}


_MD5 = _encode(hashlib.md5(DATA).digest())
_OTHER_MD5 = _encode(hashlib.md5(b"other").digest())


def _put(**more: Any) -> Any:
    return lambda s: s.dev.put_object(**{"Key": s.key, "Body": DATA, **more})


def _raw(headers: dict[str, str], body: bytes = DATA, **more: Any) -> Any:
    return lambda s: s.raw("PUT", s.path(s.key), headers=headers, body=body, **more)


def _kept(name: str, value: object) -> Any:
    return lambda s, a: (s.dev.head_object(Key=s.key).get(name), value)


def _nothing(s: Stage, a: Answer) -> tuple[object, object]:
    return s.dev.head_object(Key=s.key).status, 404


def _stays(s: Stage, a: Answer) -> tuple[object, object]:
    return s.read(s.there), b"0123456789"


def _checksums() -> list[Case]:
    cases = []
    for name, right in DIGESTS.items():
        header = f"x-amz-checksum-{name.lower()}"
        wrong = _encode(bytes(len(base64.b64decode(right))))
        cases += [
            Case(
                "PutObject",
                f"{name}: right, told again on request",
                _raw({header: right}),
                then=lambda s, a, h=header, r=right: (
                    s.raw("HEAD", s.path(s.key), headers={"x-amz-checksum-mode": "ENABLED"}).headers.get(h),
                    r,
                ),
            ),
            Case(
                "PutObject", f"{name}: of other bytes", _raw({header: wrong}), 400, "BadDigest", then=_nothing
            ),
            Case(
                "PutObject",
                f"{name}: no checksum",
                _raw({header: "no"}),
                400,
                "InvalidRequest",
                then=_nothing,
            ),
        ]
    return cases


CASES = [
    Case(
        "PutObject",
        "bytes, and their MD5 as the ETag",
        _put(),
        then=lambda s, a: ((s.read(s.key), a["ETag"]), (DATA, f'"{hashlib.md5(DATA).hexdigest()}"')),
    ),
    Case("PutObject", "no bytes at all", _put(Body=b""), then=lambda s, a: (s.read(s.key), b"")),
    Case(
        "PutObject",
        "in the place of another one",
        lambda s: s.dev.put_object(Key=s.there, Body=b"new"),
        before=(there,),
        then=lambda s, a: (s.read(s.there), b"new"),
    ),
    Case(
        "PutObject",
        "a megabyte",
        _put(Body=bytes(range(256)) * 4096),
        then=lambda s, a: (hashlib.md5(s.read(s.key)).hexdigest(), a["ETag"].strip('"')),
    ),
    Case("PutObject", "Content-Type", _put(ContentType="image/png"), then=_kept("ContentType", "image/png")),
    Case("PutObject", "without a Content-Type", _raw({}), then=_kept("ContentType", "binary/octet-stream")),
    Case(
        "PutObject", "Cache-Control", _put(CacheControl="max-age=5"), then=_kept("CacheControl", "max-age=5")
    ),
    Case(
        "PutObject",
        "Content-Disposition",
        _put(ContentDisposition='attachment; filename="a.txt"'),
        then=_kept("ContentDisposition", 'attachment; filename="a.txt"'),
    ),
    Case(
        "PutObject", "Content-Encoding", _put(ContentEncoding="gzip"), then=_kept("ContentEncoding", "gzip")
    ),
    Case(
        "PutObject",
        "aws-chunked is no encoding of the object",
        _put(ContentEncoding="aws-chunked,gzip"),
        then=_kept("ContentEncoding", "gzip"),
    ),
    Case("PutObject", "Content-Language", _put(ContentLanguage="de"), then=_kept("ContentLanguage", "de")),
    Case(
        "PutObject",
        "Expires",
        _raw({"expires": "Thu, 01 Dec 2033 16:00:00 GMT"}),
        then=_kept("ExpiresString", "Thu, 01 Dec 2033 16:00:00 GMT"),
    ),
    Case(
        "PutObject",
        "metadata",
        _put(Metadata={"one": "1", "two-words": "a b"}),
        then=_kept("Metadata", {"one": "1", "two-words": "a b"}),
    ),
    Case(
        "PutObject",
        "the names of metadata in lower case",
        _raw({"x-amz-meta-mixed": "Value"}, later=None),
        then=_kept("Metadata", {"mixed": "Value"}),
    ),
    Case(
        "PutObject",
        "metadata is replaced with the object",
        lambda s: s.dev.put_object(Key=s.key, Body=b"2", Metadata={"b": "2"}),
        before=(lambda s: s.notes.update(a=s.dev.put_object(Key=s.key, Body=b"1", Metadata={"a": "1"})),),
        then=_kept("Metadata", {"b": "2"}),
    ),
    Case(
        "PutObject",
        "2 KB of metadata",
        _put(Metadata={"a": "x" * 2047}),
        then=lambda s, a: (len(s.dev.head_object(Key=s.key)["Metadata"]["a"]), 2047),
    ),
    Case(
        "PutObject",
        "more than 2 KB of metadata",
        _put(Metadata={"a": "x" * 2048}),
        400,
        "MetadataTooLarge",
        then=_nothing,
    ),
    Case("PutObject", "a right Content-MD5", _put(ContentMD5=_MD5), then=lambda s, a: (s.read(s.key), DATA)),
    Case("PutObject", "a wrong Content-MD5", _put(ContentMD5=_OTHER_MD5), 400, "BadDigest", then=_nothing),
    Case("PutObject", "no Content-MD5", _put(ContentMD5="no"), 400, "InvalidDigest", then=_nothing),
    Case("PutObject", "an MD5 of 15 bytes", _put(ContentMD5=_MD5[:20]), 400, "InvalidDigest", then=_nothing),
    Case(
        "PutObject",
        "a wrong Content-MD5 in the place of another one",
        lambda s: s.dev.put_object(Key=s.there, Body=DATA, ContentMD5=_OTHER_MD5),
        400,
        "BadDigest",
        before=(there,),
        then=_stays,
    ),
    *_checksums(),
    Case(
        "PutObject",
        "two checksums at once",
        _raw({"x-amz-checksum-crc32": DIGESTS["CRC32"], "x-amz-checksum-sha1": DIGESTS["SHA1"]}),
        400,
        "InvalidRequest",
        then=_nothing,
    ),
    Case(
        "PutObject",
        "an algorithm that is unknown",
        _raw({"x-amz-sdk-checksum-algorithm": "CRC7", "x-amz-checksum-crc7": "AA=="}),
        400,
        "InvalidRequest",
        then=_nothing,
    ),
    Case(
        "PutObject",
        "a payload that was not signed",
        _raw({}, payload_hash=hashlib.sha256(b"other").hexdigest()),
        400,
        "XAmzContentSHA256Mismatch",
        then=_nothing,
    ),
    Case(
        "PutObject",
        "a payload hash that is none",
        _raw({}, payload_hash="sha"),
        400,
        "InvalidArgument",
        then=_nothing,
    ),
    Case(
        "PutObject",
        "without a length",
        _raw({}, body=b"", later={"content-length": "(none)"}),
        411,
        "MissingContentLength",
        then=_nothing,
    ),
    Case("PutObject", "If-None-Match: * where nothing is", _put(IfNoneMatch="*")),
    Case(
        "PutObject",
        "If-None-Match: * where something is",
        lambda s: s.dev.put_object(Key=s.there, Body=b"new", IfNoneMatch="*"),
        412,
        "PreconditionFailed",
        before=(there,),
        then=_stays,
    ),
    Case(
        "PutObject",
        "If-None-Match with an ETag",
        lambda s: s.dev.put_object(Key=s.there, Body=b"new", IfNoneMatch=s.notes["etag"]),
        501,
        "NotImplemented",
        before=(there,),
        then=_stays,
    ),
    Case(
        "PutObject",
        "If-Match that holds",
        lambda s: s.dev.put_object(Key=s.there, Body=b"new", IfMatch=s.notes["etag"]),
        before=(there,),
        then=lambda s, a: (s.read(s.there), b"new"),
    ),
    Case(
        "PutObject",
        "If-Match that does not hold",
        lambda s: s.dev.put_object(Key=s.there, Body=b"new", IfMatch='"0"'),
        412,
        "PreconditionFailed",
        before=(there,),
        then=_stays,
    ),
    Case("PutObject", "If-Match where nothing is", _put(IfMatch='"0"'), 404, "NoSuchKey", then=_nothing),
    Case(
        "PutObject",
        "a storage class",
        _put(StorageClass="STANDARD_IA"),
        then=_kept("StorageClass", "STANDARD_IA"),
    ),
    Case(
        "PutObject",
        "the usual class is not told",
        _put(StorageClass="STANDARD"),
        then=_kept("StorageClass", None),
    ),
    Case(
        "PutObject",
        "a storage class that is unknown",
        _put(StorageClass="FAST"),
        400,
        "InvalidStorageClass",
        then=_nothing,
    ),
    Case("PutObject", "tags", _put(Tagging="a=1&b=two%20words"), then=_kept("TagCount", 2)),
    Case("PutObject", "a tag twice", _put(Tagging="a=1&a=2"), 400, "InvalidTag", then=_nothing),
    Case(
        "PutObject",
        "eleven tags",
        _put(Tagging="&".join(f"k{n}=v" for n in range(11))),
        400,
        "InvalidTag",
        then=_nothing,
    ),
    Case(
        "PutObject",
        "a tag with a long name",
        _put(Tagging="k" * 129 + "=v"),
        400,
        "InvalidTag",
        then=_nothing,
    ),
    Case("PutObject", "tags that are no query", _put(Tagging="a"), 400, "InvalidArgument", then=_nothing),
    Case(
        "PutObject",
        "the ACL public-read",
        _put(ACL="public-read"),
        then=lambda s, a: (s.nobody.get_object(Key=s.key).body, DATA),
    ),
    Case("PutObject", "an ACL that is unknown", _put(ACL="mine"), 400, "InvalidArgument", then=_nothing),
    Case(
        "PutObject",
        "more than 5 GB",
        _raw({}, body=b"", later={"content-length": str((5 << 30) + 1), "expect": "100-continue"}),
        400,
        "EntityTooLarge",
        then=_nothing,
    ),
    Case(
        "PutObject",
        "a version that one wants to write",
        lambda s: s.raw("PUT", s.path(s.key), query=[("versionId", "x")], body=b"x"),
        400,
        "InvalidArgument",
        then=_nothing,
    ),
    Case("PutObject", "a missing bucket", _put(Bucket=MISSING), 404, "NoSuchBucket"),
    Case("PutObject", "somebody else's bucket", _put(Bucket=FOREIGN), 403, "AccessDenied"),
    Case(
        "PutObject",
        "one who may only read",
        lambda s: s.viewer.put_object(Key=s.there, Body=b"new"),
        403,
        "AccessDenied",
        before=(there,),
        then=_stays,
    ),
    Case(
        "PutObject",
        "anonymous",
        lambda s: s.nobody.put_object(Key=s.there, Body=b"new"),
        403,
        "AccessDenied",
        before=(there,),
        then=_stays,
    ),
]
