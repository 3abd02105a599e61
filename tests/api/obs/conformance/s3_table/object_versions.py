"""Single versions: written, read, copied and removed."""

from __future__ import annotations

import hashlib
from typing import Any

from s3_table.case import Answer, Case
from s3_table.stage import Stage, own, there, uploading, versioned
from s3_table.version_steps import listed, removed, switch

__all__ = ["CASES"]


def _get(note: str) -> Any:
    return lambda s: s.dev.get_object(Key=s.there, VersionId=s.notes[note])


_MISSING_VERSION = "3HL4kqtJlcpXroDTDmjVBH40Nrjfkd"


def versioned_later(stage: Stage) -> None:
    """Versions for a bucket that had objects before, and one more of them."""
    stage.dev.put_bucket_versioning(VersioningConfiguration={"Status": "Enabled"})
    stage.dev.put_object(Key=stage.there, Body=b"later")


def _copy_part(stage: Stage, note: str) -> Answer:
    return stage.dev.upload_part_copy(
        Key=stage.key,
        UploadId=stage.notes["upload"],
        PartNumber=2,
        CopySource={"Bucket": stage.bucket, "Key": stage.there, "VersionId": stage.notes[note]},
    )


CASES = [
    Case(
        "PutObject",
        "a new version each time",
        lambda s: s.dev.put_object(Key=s.there, Body=b"three"),
        before=(versioned,),
        then=lambda s, a: (len({a["VersionId"], s.notes["one"], s.notes["two"]}), 3),
    ),
    Case(
        "PutObject",
        "versions off again: the version null",
        lambda s: (switch("Suspended")(s), s.dev.put_object(Key=s.there, Body=b"three"))[1],
        before=(versioned,),
        then=lambda s, a: (
            (s.read(s.there, VersionId="null"), s.read(s.there, VersionId=s.notes["one"])),
            (b"three", b"one"),
        ),
    ),
    Case(
        "GetObject",
        "the newest version",
        lambda s: s.dev.get_object(Key=s.there),
        before=(versioned,),
        then=lambda s, a: ((a.body, a["VersionId"]), (b"two", s.notes["two"])),
    ),
    Case(
        "GetObject",
        "an older version",
        _get("one"),
        before=(versioned,),
        then=lambda s, a: ((a.body, a["VersionId"]), (b"one", s.notes["one"])),
    ),
    Case(
        "GetObject",
        "what was there before versions",
        lambda s: (versioned_later(s), s.dev.get_object(Key=s.there, VersionId="null"))[1],
        before=(own, there),
        then=lambda s, a: (a.body, b"0123456789"),
    ),
    Case(
        "GetObject",
        "a version that is missing",
        lambda s: s.dev.get_object(Key=s.there, VersionId=_MISSING_VERSION),
        404,
        "NoSuchVersion",
        before=(versioned,),
    ),
    Case(
        "GetObject",
        "after it was removed",
        lambda s: s.dev.get_object(Key=s.there),
        404,
        "NoSuchKey",
        before=(removed,),
        then=lambda s, a: (a.headers.get("x-amz-delete-marker"), "true"),
    ),
    Case(
        "GetObject",
        "a version of what was removed",
        _get("one"),
        before=(removed,),
        then=lambda s, a: (a.body, b"one"),
    ),
    Case(
        "GetObject",
        "a delete marker",
        _get("marker"),
        405,
        "MethodNotAllowed",
        before=(removed,),
        then=lambda s, a: (a.headers.get("x-amz-delete-marker"), "true"),
    ),
    Case(
        "HeadObject",
        "an older version",
        lambda s: s.dev.head_object(Key=s.there, VersionId=s.notes["one"]),
        before=(versioned,),
        then=lambda s, a: (a["VersionId"], s.notes["one"]),
    ),
    Case(
        "HeadObject",
        "a version that is missing",
        lambda s: s.dev.head_object(Key=s.there, VersionId=_MISSING_VERSION),
        404,
        before=(versioned,),
    ),
    Case(
        "HeadObject",
        "a delete marker",
        lambda s: s.dev.head_object(Key=s.there, VersionId=s.notes["marker"]),
        405,
        before=(removed,),
    ),
    Case(
        "CopyObject",
        "an older version",
        lambda s: s.dev.copy_object(
            Key=s.key, CopySource={"Bucket": s.bucket, "Key": s.there, "VersionId": s.notes["one"]}
        ),
        before=(versioned,),
        then=lambda s, a: ((s.read(s.key), a.get("CopySourceVersionId")), (b"one", s.notes["one"])),
    ),
    Case(
        "CopyObject",
        "an older version onto itself",
        lambda s: s.dev.copy_object(
            Key=s.there, CopySource={"Bucket": s.bucket, "Key": s.there, "VersionId": s.notes["one"]}
        ),
        before=(versioned,),
        then=lambda s, a: (s.read(s.there), b"one"),
    ),
    Case(
        "CopyObject",
        "a version that is missing",
        lambda s: s.dev.copy_object(
            Key=s.key, CopySource={"Bucket": s.bucket, "Key": s.there, "VersionId": _MISSING_VERSION}
        ),
        404,
        "NoSuchVersion",
        before=(versioned,),
    ),
    Case(
        "CopyObject",
        "a delete marker",
        lambda s: s.dev.copy_object(
            Key=s.key, CopySource={"Bucket": s.bucket, "Key": s.there, "VersionId": s.notes["marker"]}
        ),
        400,
        "InvalidRequest",
        before=(removed,),
    ),
    Case(
        "DeleteObject",
        "leaves a marker",
        lambda s: s.dev.delete_object(Key=s.there),
        204,
        before=(versioned,),
        then=lambda s, a: ((a["DeleteMarker"], s.read(s.there, VersionId=s.notes["two"])), (True, b"two")),
    ),
    Case(
        "DeleteObject",
        "one version",
        lambda s: s.dev.delete_object(Key=s.there, VersionId=s.notes["two"]),
        204,
        before=(versioned,),
        then=lambda s, a: ((a["VersionId"], s.read(s.there)), (s.notes["two"], b"one")),
    ),
    Case(
        "DeleteObject",
        "the marker, which brings the object back",
        lambda s: s.dev.delete_object(Key=s.there, VersionId=s.notes["marker"]),
        204,
        before=(removed,),
        then=lambda s, a: ((a["DeleteMarker"], s.read(s.there)), (True, b"two")),
    ),
    Case(
        "DeleteObject",
        "a version that is missing",
        lambda s: s.dev.delete_object(Key=s.there, VersionId=_MISSING_VERSION),
        204,
        before=(versioned,),
        then=lambda s, a: (s.read(s.there), b"two"),
    ),
    Case(
        "DeleteObjects",
        "single versions",
        lambda s: s.dev.delete_objects(Delete={"Objects": [{"Key": s.there, "VersionId": s.notes["one"]}]}),
        before=(versioned,),
        then=lambda s, a: (listed(s.dev.list_object_versions()), [("V", s.notes["two"], True)]),
    ),
    Case(
        "DeleteObjects",
        "leaves markers",
        lambda s: s.dev.delete_objects(Delete={"Objects": [{"Key": s.there}]}),
        before=(versioned,),
        then=lambda s, a: (
            ([e["DeleteMarker"] for e in a["Deleted"]], len(listed(s.dev.list_object_versions()))),
            ([True], 3),
        ),
    ),
    Case(
        "UploadPartCopy",
        "an older version",
        lambda s: _copy_part(s, "one"),
        before=(versioned, uploading),
        then=lambda s, a: (
            (a["CopyPartResult"]["ETag"], a.get("CopySourceVersionId")),
            (f'"{hashlib.md5(b"one").hexdigest()}"', s.notes["one"]),
        ),
    ),
    Case(
        "UploadPartCopy",
        "a delete marker",
        lambda s: _copy_part(s, "marker"),
        400,
        "InvalidRequest",
        before=(removed, uploading),
    ),
]
