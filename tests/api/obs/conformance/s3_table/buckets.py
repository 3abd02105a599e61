"""Buckets: list, create, describe, remove, and where they are."""

from __future__ import annotations

from s3_table.case import Answer, Case
from s3_table.stage import FOREIGN, MISSING, SHARED, Stage, own, there, uploading

__all__ = ["CASES"]


def _names(answer: Answer) -> list[str]:
    return [bucket["Name"] for bucket in answer["Buckets"]]


def _two_buckets(stage: Stage) -> None:
    own(stage)
    stage.dev.create_bucket(Bucket=stage.bucket + "-two")


def _create(stage: Stage, name: str) -> Answer:
    return stage.raw("PUT", f"/{name}")


def _exists(stage: Stage, name: str = "") -> int:
    return stage.dev.head_bucket(Bucket=name or stage.bucket).status


_BAD_NAMES = {
    "upper case": "conf-Upper",
    "an underscore": "conf_under",
    "two characters": "co",
    "64 characters": f"conf{'c' * 60}",
    "an address": "192.168.5.4",
    "a dot beside a dot": "conf..dots",
    "a hyphen at the end": "conf-",
    "a hyphen at the beginning": "-conf",
    "a blank": "conf%20blank",
}
_GOOD_NAMES = {"63 characters": "conf-{:058}", "dots": "conf.{}.dots", "digits": "conf0{}"}


def _naming(what: str, form: str) -> Case:
    return Case(
        "CreateBucket",
        f"a name of {what}",
        lambda s: s.dev.create_bucket(Bucket=form.format(s.number)),
        then=lambda s, a: (_exists(s, form.format(s.number)), 200),
    )


CASES = [
    Case(
        "ListBuckets",
        "all of the caller's",
        lambda s: s.dev.list_buckets(),
        then=lambda s, a: (SHARED in _names(a), True),
    ),
    Case(
        "ListBuckets",
        "none of anybody else's",
        lambda s: s.dev.list_buckets(),
        then=lambda s, a: (FOREIGN in _names(a), False),
    ),
    Case(
        "ListBuckets",
        "in the order of their names",
        lambda s: s.dev.list_buckets(),
        then=lambda s, a: (_names(a), sorted(_names(a))),
    ),
    Case(
        "ListBuckets",
        "with the owner and the time of creation",
        lambda s: s.dev.list_buckets(),
        then=lambda s, a: (bool(a["Owner"]["ID"]) and all(b["CreationDate"] for b in a["Buckets"]), True),
    ),
    Case(
        "ListBuckets",
        "those that begin alike",
        lambda s: s.dev.list_buckets(Prefix=s.bucket),
        before=(own,),
        then=lambda s, a: (_names(a), [s.bucket]),
    ),
    Case(
        "ListBuckets",
        "page by page",
        lambda s: s.dev.list_buckets(MaxBuckets=1, Prefix=s.bucket),
        before=(_two_buckets,),
        then=lambda s, a: (
            [
                _names(a),
                _names(s.dev.list_buckets(Prefix=s.bucket, ContinuationToken=a["ContinuationToken"])),
            ],
            [[s.bucket], [s.bucket + "-two"]],
        ),
    ),
    Case(
        "ListBuckets", "pages of nothing", lambda s: s.dev.list_buckets(MaxBuckets=0), 400, "InvalidArgument"
    ),
    Case(
        "ListBuckets",
        "a token that is none",
        lambda s: s.dev.list_buckets(ContinuationToken="§"),
        400,
        "InvalidArgument",
    ),
    Case("ListBuckets", "anonymous", lambda s: s.nobody.list_buckets(), 403, "AccessDenied"),
    Case("ListBuckets", "another method", lambda s: s.raw("DELETE", "/"), 405, "MethodNotAllowed"),
    Case(
        "CreateBucket",
        "a new one",
        lambda s: s.dev.create_bucket(Bucket=f"conf-new-{s.number}"),
        then=lambda s, a: (
            (_exists(s, f"conf-new-{s.number}"), a["Location"]),
            (200, f"/conf-new-{s.number}"),
        ),
    ),
    Case(
        "CreateBucket",
        "with a document that names no place",
        lambda s: s.raw("PUT", f"/conf-new-{s.number}", body=b"<CreateBucketConfiguration/>"),
        then=lambda s, a: (_exists(s, f"conf-new-{s.number}"), 200),
    ),
    Case(
        "CreateBucket",
        "with the ACL public-read",
        lambda s: s.dev.create_bucket(Bucket=f"conf-new-{s.number}", ACL="public-read"),
        then=lambda s, a: (s.nobody.list_objects_v2(Bucket=f"conf-new-{s.number}").status, 200),
    ),
    Case(
        "CreateBucket",
        "one that the caller has",
        lambda s: s.dev.create_bucket(),
        409,
        "BucketAlreadyOwnedByYou",
        before=(own, there),
    ),
    Case(
        "CreateBucket",
        "one that somebody else has",
        lambda s: s.dev.create_bucket(Bucket=FOREIGN),
        409,
        "BucketAlreadyExists",
    ),
    Case(
        "CreateBucket",
        "a document that is no XML",
        lambda s: s.raw("PUT", f"/conf-new-{s.number}", body=b"<CreateBucket"),
        400,
        "MalformedXML",
        then=lambda s, a: (_exists(s, f"conf-new-{s.number}"), 404),
    ),
    Case(
        "CreateBucket",
        "a document about something else",
        lambda s: s.raw("PUT", f"/conf-new-{s.number}", body=b"<Tagging/>"),
        400,
        "MalformedXML",
        then=lambda s, a: (_exists(s, f"conf-new-{s.number}"), 404),
    ),
    Case(
        "CreateBucket",
        "an ACL that is unknown",
        lambda s: s.dev.create_bucket(Bucket=f"conf-new-{s.number}", ACL="mine"),
        400,
        "InvalidArgument",
        then=lambda s, a: (_exists(s, f"conf-new-{s.number}"), 404),
    ),
    Case(
        "CreateBucket",
        "one who may only read",
        lambda s: s.viewer.create_bucket(Bucket=f"conf-new-{s.number}"),
        403,
        "AccessDenied",
        then=lambda s, a: (_exists(s, f"conf-new-{s.number}"), 404),
    ),
    Case(
        "CreateBucket",
        "anonymous",
        lambda s: s.nobody.create_bucket(Bucket=f"conf-new-{s.number}"),
        403,
        "AccessDenied",
        then=lambda s, a: (_exists(s, f"conf-new-{s.number}"), 404),
    ),
    *(
        Case("CreateBucket", f"a name with {what}", lambda s, n=name: _create(s, n), 400, "InvalidBucketName")
        for what, name in _BAD_NAMES.items()
    ),
    *(_naming(what, form) for what, form in _GOOD_NAMES.items()),
    Case("HeadBucket", "one that is there", lambda s: s.dev.head_bucket()),
    Case("HeadBucket", "one who may only read", lambda s: s.viewer.head_bucket()),
    Case("HeadBucket", "a missing one", lambda s: s.dev.head_bucket(Bucket=MISSING), 404),
    Case("HeadBucket", "somebody else's", lambda s: s.dev.head_bucket(Bucket=FOREIGN), 403),
    Case("HeadBucket", "anonymous", lambda s: s.nobody.head_bucket(), 403),
    Case(
        "DeleteBucket",
        "an empty one",
        lambda s: s.dev.delete_bucket(),
        204,
        before=(own,),
        then=lambda s, a: (_exists(s), 404),
    ),
    Case(
        "DeleteBucket",
        "one that was emptied",
        lambda s: (s.dev.delete_object(Key=s.there), s.dev.delete_bucket())[1],
        204,
        before=(own, there),
        then=lambda s, a: (_exists(s), 404),
    ),
    Case(
        "DeleteBucket",
        "a full one",
        lambda s: s.dev.delete_bucket(),
        409,
        "BucketNotEmpty",
        before=(own, there),
        then=lambda s, a: (s.read(s.there), b"0123456789"),
    ),
    Case(
        "DeleteBucket",
        "with an upload under way",
        lambda s: s.dev.delete_bucket(),
        204,
        before=(own, uploading),
        then=lambda s, a: (_exists(s), 404),
    ),
    Case("DeleteBucket", "a missing one", lambda s: s.dev.delete_bucket(Bucket=MISSING), 404, "NoSuchBucket"),
    Case(
        "DeleteBucket",
        "somebody else's",
        lambda s: s.dev.delete_bucket(Bucket=FOREIGN),
        403,
        "AccessDenied",
    ),
    Case(
        "DeleteBucket",
        "one who may only read",
        lambda s: s.viewer.delete_bucket(),
        403,
        "AccessDenied",
        before=(own,),
        then=lambda s, a: (_exists(s), 200),
    ),
    Case(
        "DeleteBucket",
        "anonymous",
        lambda s: s.nobody.delete_bucket(),
        403,
        "AccessDenied",
        before=(own,),
        then=lambda s, a: (_exists(s), 200),
    ),
    Case(
        "GetBucketLocation",
        "the first region has no name",
        lambda s: s.dev.get_bucket_location(),
        then=lambda s, a: (a["LocationConstraint"], None),
    ),
    Case(
        "GetBucketLocation",
        "a missing bucket",
        lambda s: s.dev.get_bucket_location(Bucket=MISSING),
        404,
        "NoSuchBucket",
    ),
    Case(
        "GetBucketLocation",
        "somebody else's bucket",
        lambda s: s.dev.get_bucket_location(Bucket=FOREIGN),
        403,
        "AccessDenied",
    ),
    Case("GetBucketLocation", "anonymous", lambda s: s.nobody.get_bucket_location(), 403, "AccessDenied"),
]
