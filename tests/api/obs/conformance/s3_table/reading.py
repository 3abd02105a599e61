"""GetObject and HeadObject: ranges, conditions, overrides, parts."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

from s3_table.case import Answer, Case
from s3_table.stage import CONTENT, FOREIGN, MISSING, Stage, there

__all__ = ["CASES"]

_PAST = datetime.now(UTC) - timedelta(days=2)
_FUTURE = datetime.now(UTC) + timedelta(days=2)


def _get(**more: Any) -> Any:
    return lambda s: s.dev.get_object(**{"Key": s.there, **more})


def _head(**more: Any) -> Any:
    return lambda s: s.dev.head_object(**{"Key": s.there, **more})


def _is(*wanted: object) -> Any:
    """The status, the bytes and the range of an answer."""
    return lambda s, a: ((a.status, a.body, a.headers.get("content-range")), wanted)


def _whole(s: Stage, a: Answer) -> tuple[object, object]:
    return a.body, CONTENT


def _empty(stage: Stage) -> None:
    stage.dev.put_object(Key=stage.k("empty"), Body=b"")


def _described(stage: Stage) -> None:
    stage.dev.put_object(
        Key=stage.there, Body=CONTENT, Metadata={"a": "1"}, ContentType="text/plain", CacheControl="no-cache"
    )


def _same(s: Stage, a: Answer) -> tuple[object, object]:
    """HEAD tells what GET tells."""
    got = s.dev.get_object(Key=s.there)
    names = ("content-length", "content-type", "etag", "last-modified", "x-amz-meta-a", "cache-control")
    return {name: a.headers.get(name) for name in names}, {name: got.headers.get(name) for name in names}


def _range_cases() -> list[Case]:
    found = {
        "bytes=0-0": (206, b"0", "bytes 0-0/10"),
        "bytes=2-4": (206, b"234", "bytes 2-4/10"),
        "bytes=7-": (206, b"789", "bytes 7-9/10"),
        "bytes=-3": (206, b"789", "bytes 7-9/10"),
        "bytes=-99": (206, CONTENT, "bytes 0-9/10"),
        "bytes=8-99": (206, b"89", "bytes 8-9/10"),
        "bytes=0-": (206, CONTENT, "bytes 0-9/10"),
        # What is not understood is left out of account, as HTTP has it.
        "bytes=x-y": (200, CONTENT, None),
        "lines=1-2": (200, CONTENT, None),
        "bytes=": (200, CONTENT, None),
    }
    cases = [
        Case("GetObject", f"Range: {text}", _get(Range=text), wanted[0], before=(there,), then=_is(*wanted))
        for text, wanted in found.items()
    ]
    refused = ["bytes=10-", "bytes=10-12", "bytes=99-", "bytes=-0"]
    cases += [
        Case("GetObject", f"Range: {text}", _get(Range=text), 416, "InvalidRange", before=(there,))
        for text in refused
    ]
    cases.append(
        Case(
            "GetObject",
            "several ranges at once are not served",
            _get(Range="bytes=0-1,4-5"),
            before=(there,),
            then=_whole,
        )
    )
    cases.append(
        Case(
            "GetObject",
            "a range of an empty object",
            lambda s: s.dev.get_object(Key=s.k("empty"), Range="bytes=0-"),
            416,
            "InvalidRange",
            before=(_empty,),
        )
    )
    return cases


_OVERRIDES = {
    "ResponseContentType": ("content-type", "text/html"),
    "ResponseContentLanguage": ("content-language", "fr"),
    "ResponseCacheControl": ("cache-control", "no-store"),
    "ResponseContentDisposition": ("content-disposition", "attachment; filename=x.bin"),
    "ResponseContentEncoding": ("content-encoding", "identity"),
}

CASES = [
    Case("GetObject", "the whole object", _get(), before=(there,), then=_whole),
    Case("GetObject", "an empty object", lambda s: s.dev.get_object(Key=s.k("empty")), before=(_empty,)),
    Case(
        "GetObject",
        "its ETag and length",
        _get(),
        before=(there,),
        then=lambda s, a: ((a["ETag"], a["ContentLength"]), (s.notes["etag"], 10)),
    ),
    Case(
        "GetObject",
        "it says that it takes ranges",
        _get(),
        before=(there,),
        then=lambda s, a: (a.headers.get("accept-ranges"), "bytes"),
    ),
    Case("GetObject", "a missing key", _get(), 404, "NoSuchKey"),
    Case("GetObject", "a missing bucket", _get(Bucket=MISSING), 404, "NoSuchBucket"),
    Case("GetObject", "somebody else's object", _get(Bucket=FOREIGN, Key="secret"), 403, "AccessDenied"),
    Case(
        "GetObject",
        "a missing key of somebody else tells nothing",
        _get(Bucket=FOREIGN, Key="missing"),
        403,
        "AccessDenied",
    ),
    Case(
        "GetObject",
        "anonymous",
        lambda s: s.nobody.get_object(Key=s.there),
        403,
        "AccessDenied",
        before=(there,),
    ),
    Case(
        "GetObject",
        "anonymous, a missing key tells nothing",
        lambda s: s.nobody.get_object(Key=s.there),
        403,
        "AccessDenied",
    ),
    Case(
        "GetObject",
        "one who may only read",
        lambda s: s.viewer.get_object(Key=s.there),
        before=(there,),
        then=_whole,
    ),
    *_range_cases(),
    Case(
        "GetObject",
        "If-Match that holds",
        lambda s: s.dev.get_object(Key=s.there, IfMatch=s.notes["etag"]),
        before=(there,),
        then=_whole,
    ),
    Case(
        "GetObject",
        "If-Range of this one",
        lambda s: s.raw("GET", s.path(s.there), later={"range": "bytes=0-1", "if-range": s.notes["etag"]}),
        206,
        before=(there,),
        then=lambda s, a: (a.body, b"01"),
    ),
    Case(
        "GetObject",
        "If-Range of another",
        lambda s: s.raw("GET", s.path(s.there), later={"range": "bytes=0-1", "if-range": '"0"'}),
        before=(there,),
        then=_whole,
    ),
    Case("GetObject", "If-Match: *", _get(IfMatch="*"), before=(there,), then=_whole),
    Case("GetObject", "If-Match of another", _get(IfMatch='"0"'), 412, "PreconditionFailed", before=(there,)),
    Case("GetObject", "If-None-Match of another", _get(IfNoneMatch='"0"'), before=(there,), then=_whole),
    Case(
        "GetObject",
        "If-None-Match of this one",
        lambda s: s.dev.get_object(Key=s.there, IfNoneMatch=s.notes["etag"]),
        304,
        before=(there,),
    ),
    Case("GetObject", "If-None-Match: *", _get(IfNoneMatch="*"), 304, before=(there,)),
    Case(
        "GetObject", "If-Modified-Since the past", _get(IfModifiedSince=_PAST), before=(there,), then=_whole
    ),
    Case(
        "GetObject",
        "If-Modified-Since its last change",
        lambda s: s.dev.get_object(
            Key=s.there, IfModifiedSince=s.dev.head_object(Key=s.there)["LastModified"]
        ),
        304,
        before=(there,),
    ),
    Case(
        "GetObject",
        "If-Unmodified-Since the future",
        _get(IfUnmodifiedSince=_FUTURE),
        before=(there,),
        then=_whole,
    ),
    Case(
        "GetObject",
        "If-Unmodified-Since the past",
        _get(IfUnmodifiedSince=_PAST),
        412,
        "PreconditionFailed",
        before=(there,),
    ),
    Case(
        "GetObject",
        "If-Match holds, so that If-Unmodified-Since does not count",
        lambda s: s.dev.get_object(Key=s.there, IfMatch=s.notes["etag"], IfUnmodifiedSince=_PAST),
        before=(there,),
        then=_whole,
    ),
    Case(
        "GetObject",
        "If-None-Match fails, so that If-Modified-Since does not count",
        lambda s: s.dev.get_object(Key=s.there, IfNoneMatch=s.notes["etag"], IfModifiedSince=_PAST),
        304,
        before=(there,),
    ),
    *(
        Case(
            "GetObject",
            f"another {header} in the answer",
            _get(**{name: value}),
            before=(there,),
            then=lambda s, a, h=header, v=value: (a.headers.get(h), v),
        )
        for name, (header, value) in _OVERRIDES.items()
    ),
    Case(
        "GetObject",
        "another header in the answer to somebody without a name",
        lambda s: s.nobody.get_object(Key=s.key, ResponseContentType="text/html"),
        400,
        "InvalidRequest",
        before=(lambda s: s.notes.update(a=s.dev.put_object(Key=s.key, Body=b"x", ACL="public-read")),),
    ),
    Case(
        "GetObject",
        "part 1 of an object that has no parts",
        _get(PartNumber=1),
        206,
        before=(there,),
        then=_is(206, CONTENT, "bytes 0-9/10"),
    ),
    Case(
        "GetObject",
        "part 2 of an object that has no parts",
        _get(PartNumber=2),
        416,
        "InvalidPartNumber",
        before=(there,),
    ),
    Case("GetObject", "part 0", _get(PartNumber=0), 400, "InvalidArgument", before=(there,)),
    Case(
        "GetObject",
        "a part and a range at once",
        _get(PartNumber=1, Range="bytes=0-1"),
        400,
        "InvalidRequest",
        before=(there,),
    ),
    Case("GetObject", "a version of what has none", _get(VersionId="null"), before=(there,), then=_whole),
    Case("HeadObject", "all that GET tells", _head(), before=(_described,), then=_same),
    Case("HeadObject", "a missing key", _head(), 404),
    Case("HeadObject", "a missing bucket", _head(Bucket=MISSING), 404),
    Case("HeadObject", "somebody else's object", _head(Bucket=FOREIGN, Key="secret"), 403),
    Case("HeadObject", "anonymous", lambda s: s.nobody.head_object(Key=s.there), 403, before=(there,)),
    Case("HeadObject", "one who may only read", lambda s: s.viewer.head_object(Key=s.there), before=(there,)),
    Case(
        "HeadObject",
        "a range",
        _head(Range="bytes=2-4"),
        206,
        before=(there,),
        then=lambda s, a: (
            (a.headers.get("content-length"), a.headers.get("content-range")),
            ("3", "bytes 2-4/10"),
        ),
    ),
    Case("HeadObject", "a range beyond the end", _head(Range="bytes=99-"), 416, before=(there,)),
    Case("HeadObject", "If-Match of another", _head(IfMatch='"0"'), 412, before=(there,)),
    Case(
        "HeadObject",
        "If-None-Match of this one",
        lambda s: s.dev.head_object(Key=s.there, IfNoneMatch=s.notes["etag"]),
        304,
        before=(there,),
    ),
    Case("HeadObject", "If-Unmodified-Since the past", _head(IfUnmodifiedSince=_PAST), 412, before=(there,)),
    Case("HeadObject", "If-Modified-Since the past", _head(IfModifiedSince=_PAST), before=(there,)),
    Case(
        "HeadObject",
        "a checksum on request",
        _head(ChecksumMode="ENABLED"),
        before=(
            lambda s: s.notes.update(a=s.dev.put_object(Key=s.there, Body=b"x", ChecksumAlgorithm="SHA256")),
        ),
        then=lambda s, a: (a.get("ChecksumSHA256"), base64.b64encode(hashlib.sha256(b"x").digest()).decode()),
    ),
    Case(
        "HeadObject",
        "no checksum unasked",
        lambda s: s.raw("HEAD", s.path(s.there)),
        before=(
            lambda s: s.notes.update(a=s.dev.put_object(Key=s.there, Body=b"x", ChecksumAlgorithm="SHA256")),
        ),
        then=lambda s, a: (a.headers.get("x-amz-checksum-sha256"), None),
    ),
]
