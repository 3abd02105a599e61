"""Versions: switching them on, reading, copying and removing single ones, and listing all."""

from __future__ import annotations

from typing import Any

from s3_table.case import Answer, Case
from s3_table.stage import FOREIGN, MISSING, Stage, own, there, versioned

__all__ = ["CASES"]


def removed(stage: Stage) -> None:
    """The object with two versions, removed; its marker is noted."""
    versioned(stage)
    stage.notes["marker"] = stage.dev.delete_object(Key=stage.there)["VersionId"]


def _status(s: Stage, a: Answer) -> object:
    return s.dev.get_bucket_versioning().get("Status")


def _set(status: str) -> Any:
    return lambda s: s.dev.put_bucket_versioning(VersioningConfiguration={"Status": status})


def _listed(answer: Answer) -> list[tuple[str, str, bool]]:
    return [
        (kind[0], entry["VersionId"], entry["IsLatest"])
        for kind in ("Versions", "DeleteMarkers")
        for entry in answer.get(kind, [])
    ]


def _get(note: str) -> Any:
    return lambda s: s.dev.get_object(Key=s.there, VersionId=s.notes[note])


def _pages(stage: Stage) -> list[tuple[str, str, bool]]:
    found: list[tuple[str, str, bool]] = []
    where: dict[str, str] = {}
    for _ in range(9):
        page = stage.dev.list_object_versions(MaxKeys=1, **where)
        found += _listed(page)
        if not page["IsTruncated"]:
            break
        where = {"KeyMarker": page["NextKeyMarker"], "VersionIdMarker": page["NextVersionIdMarker"]}
    return found


_MISSING_VERSION = "3HL4kqtJlcpXroDTDmjVBH40Nrjfkd"

CASES = [
    Case(
        "GetBucketVersioning",
        "never asked for",
        lambda s: s.dev.get_bucket_versioning(),
        before=(own,),
        then=lambda s, a: (a.get("Status"), None),
    ),
    Case(
        "GetBucketVersioning",
        "switched on",
        lambda s: s.dev.get_bucket_versioning(),
        before=(versioned,),
        then=lambda s, a: (a.get("Status"), "Enabled"),
    ),
    Case(
        "GetBucketVersioning",
        "a missing bucket",
        lambda s: s.dev.get_bucket_versioning(Bucket=MISSING),
        404,
        "NoSuchBucket",
    ),
    Case(
        "GetBucketVersioning",
        "somebody else's bucket",
        lambda s: s.dev.get_bucket_versioning(Bucket=FOREIGN),
        403,
        "AccessDenied",
    ),
    Case(
        "PutBucketVersioning",
        "on",
        _set("Enabled"),
        before=(own,),
        then=lambda s, a: (_status(s, a), "Enabled"),
    ),
    Case(
        "PutBucketVersioning",
        "off again",
        _set("Suspended"),
        before=(versioned,),
        then=lambda s, a: (_status(s, a), "Suspended"),
    ),
    Case(
        "PutBucketVersioning",
        "a status that is unknown",
        _set("On"),
        400,
        "MalformedXML",
        before=(own,),
        then=lambda s, a: (_status(s, a), None),
    ),
    Case(
        "PutBucketVersioning",
        "no XML",
        lambda s: s.raw_document("versioning", b"on"),
        400,
        "MalformedXML",
        before=(own,),
    ),
    Case(
        "PutBucketVersioning",
        "a missing bucket",
        lambda s: s.dev.put_bucket_versioning(Bucket=MISSING, VersioningConfiguration={"Status": "Enabled"}),
        404,
        "NoSuchBucket",
    ),
    Case(
        "PutBucketVersioning",
        "somebody else's bucket",
        lambda s: s.dev.put_bucket_versioning(Bucket=FOREIGN, VersioningConfiguration={"Status": "Enabled"}),
        403,
        "AccessDenied",
    ),
    Case(
        "PutBucketVersioning",
        "one who may only read",
        lambda s: s.viewer.put_bucket_versioning(VersioningConfiguration={"Status": "Enabled"}),
        403,
        "AccessDenied",
        before=(own,),
        then=lambda s, a: (_status(s, a), None),
    ),
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
        lambda s: (_set("Suspended")(s), s.dev.put_object(Key=s.there, Body=b"three"))[1],
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
        then=lambda s, a: (_listed(s.dev.list_object_versions()), [("V", s.notes["two"], True)]),
    ),
    Case(
        "DeleteObjects",
        "leaves markers",
        lambda s: s.dev.delete_objects(Delete={"Objects": [{"Key": s.there}]}),
        before=(versioned,),
        then=lambda s, a: (
            ([e["DeleteMarker"] for e in a["Deleted"]], len(_listed(s.dev.list_object_versions()))),
            ([True], 3),
        ),
    ),
    Case(
        "DeleteBucket",
        "with nothing but old versions",
        lambda s: s.dev.delete_bucket(),
        409,
        "BucketNotEmpty",
        before=(removed,),
    ),
    Case(
        "ListObjectVersions",
        "the newest first",
        lambda s: s.dev.list_object_versions(),
        before=(versioned,),
        then=lambda s, a: (_listed(a), [("V", s.notes["two"], True), ("V", s.notes["one"], False)]),
    ),
    Case(
        "ListObjectVersions",
        "markers too",
        lambda s: s.dev.list_object_versions(),
        before=(removed,),
        then=lambda s, a: (
            _listed(a),
            [("V", s.notes["two"], False), ("V", s.notes["one"], False), ("D", s.notes["marker"], True)],
        ),
    ),
    Case(
        "ListObjectVersions",
        "page by page",
        lambda s: s.dev.list_object_versions(),
        before=(removed,),
        then=lambda s, a: (
            [version for _, version, _ in _pages(s)],
            [s.notes["marker"], s.notes["two"], s.notes["one"]],
        ),
    ),
    Case(
        "ListObjectVersions",
        "below a prefix",
        lambda s: s.dev.list_object_versions(Prefix="none"),
        before=(versioned,),
        then=lambda s, a: (_listed(a), []),
    ),
    Case(
        "ListObjectVersions",
        "folders",
        lambda s: s.dev.list_object_versions(Delimiter="/"),
        before=(versioned,),
        then=lambda s, a: ((_listed(a), a["CommonPrefixes"]), ([], [{"Prefix": s.prefix}])),
    ),
    Case(
        "ListObjectVersions",
        "of a bucket that keeps none",
        lambda s: s.dev.list_object_versions(),
        before=(own, there),
        then=lambda s, a: (_listed(a), [("V", "null", True)]),
    ),
    Case(
        "ListObjectVersions",
        "max-keys that is no number",
        lambda s: s.raw("GET", f"/{s.bucket}", query=[("versions", ""), ("max-keys", "x")]),
        400,
        "InvalidArgument",
    ),
    Case(
        "ListObjectVersions",
        "an encoding that is unknown",
        lambda s: s.raw("GET", f"/{s.bucket}", query=[("versions", ""), ("encoding-type", "x")]),
        400,
        "InvalidArgument",
    ),
    Case(
        "ListObjectVersions",
        "a version without a key to go on after",
        lambda s: s.raw("GET", f"/{s.bucket}", query=[("versions", ""), ("version-id-marker", "x")]),
        400,
        "InvalidArgument",
    ),
    Case(
        "ListObjectVersions",
        "a missing bucket",
        lambda s: s.dev.list_object_versions(Bucket=MISSING),
        404,
        "NoSuchBucket",
    ),
    Case(
        "ListObjectVersions",
        "somebody else's bucket",
        lambda s: s.dev.list_object_versions(Bucket=FOREIGN),
        403,
        "AccessDenied",
    ),
    Case("ListObjectVersions", "anonymous", lambda s: s.nobody.list_object_versions(), 403, "AccessDenied"),
]


def versioned_later(stage: Stage) -> None:
    """Versions for a bucket that had objects before, and one more of them."""
    stage.dev.put_bucket_versioning(VersioningConfiguration={"Status": "Enabled"})
    stage.dev.put_object(Key=stage.there, Body=b"later")
