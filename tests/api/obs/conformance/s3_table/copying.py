"""CopyObject: sources, directives, conditions, and copies onto oneself."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

from s3_table.case import Answer, Case
from s3_table.stage import CONTENT, FOREIGN, MISSING, SHARED, Stage, own

__all__ = ["CASES"]

_PAST = datetime.now(UTC) - timedelta(days=2)
_FUTURE = datetime.now(UTC) + timedelta(days=2)


def source(stage: Stage) -> None:
    """An object with metadata, a type and a tag."""
    answer = stage.dev.put_object(
        Key=stage.there, Body=CONTENT, Metadata={"a": "1"}, ContentType="text/plain", Tagging="t=1"
    )
    stage.notes["etag"] = answer["ETag"]


def _copy(**more: Any) -> Any:
    return lambda s: s.dev.copy_object(
        **{"Key": s.key, "CopySource": {"Bucket": s.bucket, "Key": s.there}, **more}
    )


def _conditional(name: str, value: object = None) -> Any:
    return lambda s: s.dev.copy_object(
        Key=s.key,
        CopySource={"Bucket": s.bucket, "Key": s.there},
        **{name: s.notes["etag"] if value is None else value},
    )


def _copied(s: Stage, a: Answer) -> tuple[object, object]:
    return s.read(s.key), CONTENT


def _nothing(s: Stage, a: Answer) -> tuple[object, object]:
    return s.dev.head_object(Key=s.key).status, 404


def _onto_itself(**more: Any) -> Any:
    return lambda s: s.dev.copy_object(Key=s.there, CopySource={"Bucket": s.bucket, "Key": s.there}, **more)


def _head(key: str, *names: str) -> Any:
    return lambda s: tuple(s.dev.head_object(Key=getattr(s, key)).get(name) for name in names)


def _raw_source(text: str) -> Any:
    return lambda s: s.raw("PUT", s.path(s.key), headers={"x-amz-copy-source": text.format(s=s)})


def _other_bucket(stage: Stage) -> None:
    source(stage)
    stage.notes["from"] = stage.bucket
    own(stage)


CASES = [
    Case("CopyObject", "bytes", _copy(), before=(source,), then=_copied),
    Case(
        "CopyObject",
        "tells the ETag and the time",
        _copy(),
        before=(source,),
        then=lambda s, a: (
            (a["CopyObjectResult"]["ETag"], "LastModified" in a["CopyObjectResult"]),
            (s.notes["etag"], True),
        ),
    ),
    Case(
        "CopyObject",
        "takes metadata and type along",
        _copy(),
        before=(source,),
        then=lambda s, a: (_head("key", "Metadata", "ContentType")(s), ({"a": "1"}, "text/plain")),
    ),
    Case(
        "CopyObject",
        "REPLACE: other metadata and type",
        _copy(MetadataDirective="REPLACE", Metadata={"b": "2"}, ContentType="text/html"),
        before=(source,),
        then=lambda s, a: (_head("key", "Metadata", "ContentType")(s), ({"b": "2"}, "text/html")),
    ),
    Case(
        "CopyObject",
        "COPY: metadata of the request does not count",
        _copy(MetadataDirective="COPY", Metadata={"b": "2"}),
        before=(source,),
        then=lambda s, a: (_head("key", "Metadata")(s), ({"a": "1"},)),
    ),
    Case(
        "CopyObject",
        "takes tags along",
        _copy(),
        before=(source,),
        then=lambda s, a: (s.dev.get_object_tagging(Key=s.key)["TagSet"], [{"Key": "t", "Value": "1"}]),
    ),
    Case(
        "CopyObject",
        "other tags",
        _copy(TaggingDirective="REPLACE", Tagging="u=2"),
        before=(source,),
        then=lambda s, a: (s.dev.get_object_tagging(Key=s.key)["TagSet"], [{"Key": "u", "Value": "2"}]),
    ),
    Case(
        "CopyObject",
        "another storage class",
        _copy(StorageClass="STANDARD_IA"),
        before=(source,),
        then=lambda s, a: (_head("key", "StorageClass")(s), ("STANDARD_IA",)),
    ),
    Case(
        "CopyObject",
        "tells the checksum that its source came with",
        _copy(),
        before=(
            lambda s: s.notes.update(
                a=s.dev.put_object(Key=s.there, Body=CONTENT, ChecksumAlgorithm="SHA256")
            ),
        ),
        then=lambda s, a: (
            a["CopyObjectResult"].get("ChecksumSHA256"),
            base64.b64encode(hashlib.sha256(CONTENT).digest()).decode(),
        ),
    ),
    Case(
        "CopyObject",
        "If-None-Match: * where nothing is",
        _copy(IfNoneMatch="*"),
        before=(source,),
        then=_copied,
    ),
    Case(
        "CopyObject",
        "If-None-Match: * where something is",
        lambda s: (s.dev.put_object(Key=s.key, Body=b"old"), _copy(IfNoneMatch="*")(s))[1],
        412,
        "PreconditionFailed",
        before=(source,),
        then=lambda s, a: (s.read(s.key), b"old"),
        is_harmless=False,
    ),
    Case(
        "CopyObject",
        "the copy of a public object is private",
        lambda s: (s.dev.put_object_acl(Key=s.there, ACL="public-read"), _copy()(s))[1],
        before=(source,),
        then=lambda s, a: (s.nobody.get_object(Key=s.key).code, "AccessDenied"),
    ),
    Case(
        "CopyObject",
        "from another bucket",
        lambda s: s.dev.copy_object(Key=s.key, CopySource={"Bucket": s.notes["from"], "Key": s.there}),
        before=(_other_bucket,),
        then=_copied,
    ),
    Case(
        "CopyObject",
        "a source with an encoded key",
        lambda s: s.dev.copy_object(Key=s.key, CopySource={"Bucket": s.bucket, "Key": s.k("a b+ü&?")}),
        before=(lambda s: s.notes.update(a=s.dev.put_object(Key=s.k("a b+ü&?"), Body=CONTENT)),),
        then=_copied,
    ),
    Case(
        "CopyObject",
        "a source that begins with a slash",
        _raw_source("/{s.bucket}/{s.there}"),
        before=(source,),
        then=_copied,
    ),
    Case(
        "CopyObject",
        "in the place of another one",
        lambda s: (s.dev.put_object(Key=s.key, Body=b"old"), _copy()(s))[1],
        before=(source,),
        then=_copied,
    ),
    Case("CopyObject", "onto itself", _onto_itself(), 400, "InvalidRequest", before=(source,)),
    Case(
        "CopyObject",
        "onto itself with other metadata",
        _onto_itself(MetadataDirective="REPLACE", Metadata={"b": "2"}),
        before=(source,),
        then=lambda s, a: ((_head("there", "Metadata")(s), s.read(s.there)), (({"b": "2"},), CONTENT)),
    ),
    Case(
        "CopyObject",
        "onto itself with another storage class",
        _onto_itself(StorageClass="STANDARD_IA"),
        before=(source,),
        then=lambda s, a: (_head("there", "StorageClass", "Metadata")(s), ("STANDARD_IA", {"a": "1"})),
    ),
    Case("CopyObject", "a missing key", _copy(), 404, "NoSuchKey", then=_nothing),
    Case(
        "CopyObject",
        "from a missing bucket",
        _copy(CopySource={"Bucket": MISSING, "Key": "x"}),
        404,
        "NoSuchBucket",
        then=_nothing,
    ),
    Case(
        "CopyObject",
        "into a missing bucket",
        _copy(Bucket=MISSING, CopySource=f"{SHARED}/secret"),
        404,
        "NoSuchBucket",
    ),
    Case(
        "CopyObject",
        "somebody else's object",
        _copy(CopySource={"Bucket": FOREIGN, "Key": "secret"}),
        403,
        "AccessDenied",
        then=_nothing,
    ),
    Case(
        "CopyObject",
        "into somebody else's bucket",
        _copy(Bucket=FOREIGN, CopySource=f"{SHARED}/secret"),
        403,
        "AccessDenied",
    ),
    Case(
        "CopyObject",
        "one who may only read",
        lambda s: s.viewer.copy_object(Key=s.key, CopySource=f"{s.bucket}/{s.there}"),
        403,
        "AccessDenied",
        before=(source,),
        then=_nothing,
    ),
    Case(
        "CopyObject",
        "anonymous",
        lambda s: s.nobody.copy_object(Key=s.key, CopySource=f"{s.bucket}/{s.there}"),
        403,
        "AccessDenied",
        before=(source,),
        then=_nothing,
    ),
    Case(
        "CopyObject",
        "a source without a key",
        _raw_source("{s.bucket}"),
        400,
        "InvalidArgument",
        then=_nothing,
    ),
    Case("CopyObject", "a source that is empty", _raw_source("/"), 400, "InvalidArgument", then=_nothing),
    Case(
        "CopyObject",
        "a directive that is unknown",
        _copy(MetadataDirective="MERGE"),
        400,
        "InvalidArgument",
        before=(source,),
        then=_nothing,
    ),
    Case(
        "CopyObject",
        "a tagging directive that is unknown",
        _copy(TaggingDirective="MERGE"),
        400,
        "InvalidArgument",
        before=(source,),
        then=_nothing,
    ),
    Case(
        "CopyObject",
        "a storage class that is unknown",
        _copy(StorageClass="FAST"),
        400,
        "InvalidStorageClass",
        before=(source,),
        then=_nothing,
    ),
    Case(
        "CopyObject",
        "more than 2 KB of metadata",
        _copy(MetadataDirective="REPLACE", Metadata={"a": "x" * 2048}),
        400,
        "MetadataTooLarge",
        before=(source,),
        then=_nothing,
    ),
    Case(
        "CopyObject", "if-match that holds", _conditional("CopySourceIfMatch"), before=(source,), then=_copied
    ),
    Case(
        "CopyObject",
        "if-match of another",
        _conditional("CopySourceIfMatch", '"0"'),
        412,
        "PreconditionFailed",
        before=(source,),
        then=_nothing,
    ),
    Case(
        "CopyObject",
        "if-none-match of another",
        _conditional("CopySourceIfNoneMatch", '"0"'),
        before=(source,),
        then=_copied,
    ),
    Case(
        "CopyObject",
        "if-none-match of this one",
        _conditional("CopySourceIfNoneMatch"),
        412,
        "PreconditionFailed",
        before=(source,),
        then=_nothing,
    ),
    Case(
        "CopyObject",
        "if-modified-since the past",
        _conditional("CopySourceIfModifiedSince", _PAST),
        before=(source,),
        then=_copied,
    ),
    Case(
        "CopyObject",
        "if-modified-since the last change",
        lambda s: s.dev.copy_object(
            Key=s.key,
            CopySource=f"{s.bucket}/{s.there}",
            CopySourceIfModifiedSince=s.dev.head_object(Key=s.there)["LastModified"],
        ),
        412,
        "PreconditionFailed",
        before=(source,),
        then=_nothing,
    ),
    Case(
        "CopyObject",
        "if-unmodified-since the future",
        _conditional("CopySourceIfUnmodifiedSince", _FUTURE),
        before=(source,),
        then=_copied,
    ),
    Case(
        "CopyObject",
        "if-unmodified-since the past",
        _conditional("CopySourceIfUnmodifiedSince", _PAST),
        412,
        "PreconditionFailed",
        before=(source,),
        then=_nothing,
    ),
]
