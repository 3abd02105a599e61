"""Versions of a bucket: switched on, and listed."""

from __future__ import annotations

from s3_table.case import Answer, Case
from s3_table.stage import FOREIGN, MISSING, Stage, own, there, versioned
from s3_table.version_steps import listed, removed, switch

__all__ = ["CASES"]


def _status(s: Stage, a: Answer) -> object:
    return s.dev.get_bucket_versioning().get("Status")


def _pages(stage: Stage) -> list[tuple[str, str, bool]]:
    found: list[tuple[str, str, bool]] = []
    where: dict[str, str] = {}
    for _ in range(9):
        page = stage.dev.list_object_versions(MaxKeys=1, **where)
        found += listed(page)
        if not page["IsTruncated"]:
            break
        where = {"KeyMarker": page["NextKeyMarker"], "VersionIdMarker": page["NextVersionIdMarker"]}
    return found


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
        switch("Enabled"),
        before=(own,),
        then=lambda s, a: (_status(s, a), "Enabled"),
    ),
    Case(
        "PutBucketVersioning",
        "off again",
        switch("Suspended"),
        before=(versioned,),
        then=lambda s, a: (_status(s, a), "Suspended"),
    ),
    Case(
        "PutBucketVersioning",
        "a status that is unknown",
        switch("On"),
        400,
        "MalformedXML",
        before=(own,),
        then=lambda s, a: (_status(s, a), None),
    ),
    Case(
        "PutBucketVersioning",
        "a second factor, which there is not",
        lambda s: s.raw_document(
            "versioning",
            b"<VersioningConfiguration><Status>Enabled</Status><MfaDelete>Enabled</MfaDelete></VersioningConfiguration>",
        ),
        501,
        "NotImplemented",
        before=(own,),
        then=lambda s, a: (s.dev.get_bucket_versioning().get("Status"), None),
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
        then=lambda s, a: (listed(a), [("V", s.notes["two"], True), ("V", s.notes["one"], False)]),
    ),
    Case(
        "ListObjectVersions",
        "markers too",
        lambda s: s.dev.list_object_versions(),
        before=(removed,),
        then=lambda s, a: (
            listed(a),
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
        then=lambda s, a: (listed(a), []),
    ),
    Case(
        "ListObjectVersions",
        "folders",
        lambda s: s.dev.list_object_versions(Delimiter="/"),
        before=(versioned,),
        then=lambda s, a: ((listed(a), a["CommonPrefixes"]), ([], [{"Prefix": s.prefix}])),
    ),
    Case(
        "ListObjectVersions",
        "of a bucket that keeps none",
        lambda s: s.dev.list_object_versions(),
        before=(own, there),
        then=lambda s, a: (listed(a), [("V", "null", True)]),
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
