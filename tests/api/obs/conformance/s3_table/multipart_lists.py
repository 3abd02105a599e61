"""Uploads in parts: abort them, list their parts, list those under way."""

from __future__ import annotations

from s3_table.case import Answer, Case
from s3_table.multipart_steps import MIB, NONE, abort, two_parts
from s3_table.stage import FOREIGN, MISSING, Stage, own, uploading

__all__ = ["CASES"]


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


CASES = [
    Case(
        "AbortMultipartUpload",
        "one that is under way",
        lambda s: abort(s),
        204,
        before=(uploading,),
        then=lambda s, a: (s.dev.list_parts(Key=s.key, UploadId=s.notes["upload"]).code, "NoSuchUpload"),
    ),
    Case(
        "AbortMultipartUpload",
        "a missing one",
        lambda s: abort(s, **NONE),
        404,
        "NoSuchUpload",
        before=(uploading,),
    ),
    Case(
        "AbortMultipartUpload",
        "of another key",
        lambda s: abort(s, Key=s.k("other")),
        404,
        "NoSuchUpload",
        before=(uploading,),
    ),
    Case(
        "AbortMultipartUpload",
        "a missing bucket",
        lambda s: abort(s, Bucket=MISSING),
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
            [(1, 5 * MIB, s.notes["parts"][0]["ETag"]), (2, 3, s.notes["parts"][1]["ETag"])],
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
    Case("ListParts", "a missing upload", lambda s: s.dev.list_parts(Key=s.key, **NONE), 404, "NoSuchUpload"),
    Case(
        "ListParts",
        "a missing bucket",
        lambda s: s.dev.list_parts(Bucket=MISSING, Key=s.key, **NONE),
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
