"""Who a bucket is for, and what it is called: tags, policy, ACL."""

from __future__ import annotations

import json
from typing import Any

from s3_table.case import Answer, Case
from s3_table.setting_steps import closed
from s3_table.stage import CONTENT, FOREIGN, MISSING, Stage, own, there

__all__ = ["CASES"]

_TAGS = {"TagSet": [{"Key": "a", "Value": "1"}]}
_POLICY_OF_NOTHING = (
    '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",'
    f' "Resource": "arn:aws:s3:::{MISSING}/*"}}]}}'
)


def _policy(stage: Stage, **changes: Any) -> str:
    statement = {
        "Effect": "Allow",
        "Principal": "*",
        "Action": "s3:GetObject",
        "Resource": f"arn:aws:s3:::{stage.bucket}/*",
        **changes,
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def with_tags(stage: Stage) -> None:
    """A bucket with a tag."""
    own(stage)
    stage.dev.put_bucket_tagging(Tagging=_TAGS)


def with_policy(stage: Stage) -> None:
    """A bucket whose objects everybody may read, and one of them."""
    own(stage)
    there(stage)
    stage.dev.put_bucket_policy(Policy=_policy(stage))


def _everybody_reads(stage: Stage) -> bytes:
    return stage.nobody.get_object(Key=stage.there).body


def _tags_stay(s: Stage, a: Answer) -> tuple[object, object]:
    return s.dev.get_bucket_tagging()["TagSet"], _TAGS["TagSet"]


def _policy_stays(s: Stage, a: Answer) -> tuple[object, object]:
    return _everybody_reads(s), CONTENT


_TAGGING = [
    Case(
        "PutBucketTagging",
        "one",
        lambda s: s.dev.put_bucket_tagging(Tagging=_TAGS),
        204,
        before=(own,),
        then=_tags_stay,
    ),
    Case(
        "GetBucketTagging", "some", lambda s: s.dev.get_bucket_tagging(), before=(with_tags,), then=_tags_stay
    ),
    Case(
        "GetBucketTagging", "none", lambda s: s.dev.get_bucket_tagging(), 404, "NoSuchTagSet", before=(own,)
    ),
    Case(
        "DeleteBucketTagging",
        "all",
        lambda s: s.dev.delete_bucket_tagging(),
        204,
        before=(with_tags,),
        then=lambda s, a: (s.dev.get_bucket_tagging().code, "NoSuchTagSet"),
    ),
    Case(
        "PutBucketTagging",
        "one twice",
        lambda s: s.dev.put_bucket_tagging(Tagging={"TagSet": _TAGS["TagSet"] * 2}),
        400,
        "InvalidTag",
        before=(with_tags,),
        then=_tags_stay,
    ),
    Case(
        "PutBucketTagging",
        "fifty-one",
        lambda s: s.dev.put_bucket_tagging(
            Tagging={"TagSet": [{"Key": f"k{n}", "Value": "v"} for n in range(51)]}
        ),
        400,
        "InvalidTag",
        before=(with_tags,),
        then=_tags_stay,
    ),
    Case(
        "PutBucketTagging",
        "no XML",
        lambda s: s.raw_document("tagging", b"tags"),
        400,
        "MalformedXML",
        before=(with_tags,),
        then=_tags_stay,
    ),
    *closed("bucket_tagging", {"Tagging": _TAGS}),
]


_POLICY = [
    Case(
        "PutBucketPolicy",
        "everybody may read objects",
        lambda s: s.dev.put_bucket_policy(Policy=_policy(s)),
        204,
        before=(own, there),
        then=_policy_stays,
    ),
    Case(
        "PutBucketPolicy",
        "and nothing else",
        lambda s: (s.dev.put_bucket_policy(Policy=_policy(s)), s.nobody.list_objects_v2())[1],
        403,
        "AccessDenied",
        before=(own, there),
        is_harmless=False,
    ),
    Case(
        "PutBucketPolicy",
        "everybody may list",
        lambda s: s.dev.put_bucket_policy(
            Policy=_policy(s, Action="s3:ListBucket", Resource=f"arn:aws:s3:::{s.bucket}")
        ),
        204,
        before=(own, there),
        then=lambda s, a: (
            (s.nobody.list_objects_v2().status, s.nobody.get_object(Key=s.there).code),
            (200, "AccessDenied"),
        ),
    ),
    Case(
        "PutBucketPolicy",
        "everybody may write below a prefix",
        lambda s: s.dev.put_bucket_policy(
            Policy=_policy(s, Action="s3:PutObject", Resource=f"arn:aws:s3:::{s.bucket}/{s.prefix}in/*")
        ),
        204,
        before=(own, there),
        then=lambda s, a: (
            (
                s.nobody.put_object(Key=s.k("in/x"), Body=b"x").status,
                s.nobody.put_object(Key=s.k("x"), Body=b"x").code,
            ),
            (200, "AccessDenied"),
        ),
    ),
    Case(
        "GetBucketPolicy",
        "as it was set",
        lambda s: s.dev.get_bucket_policy(),
        before=(with_policy,),
        then=lambda s, a: (json.loads(a["Policy"]), json.loads(_policy(s))),
    ),
    Case(
        "GetBucketPolicy",
        "none",
        lambda s: s.dev.get_bucket_policy(),
        404,
        "NoSuchBucketPolicy",
        before=(own,),
    ),
    Case(
        "DeleteBucketPolicy",
        "closes the bucket again",
        lambda s: s.dev.delete_bucket_policy(),
        204,
        before=(with_policy,),
        then=lambda s, a: (s.nobody.get_object(Key=s.there).code, "AccessDenied"),
    ),
    Case("DeleteBucketPolicy", "none", lambda s: s.dev.delete_bucket_policy(), 204, before=(own,)),
    Case(
        "PutBucketPolicy",
        "no JSON",
        lambda s: s.dev.put_bucket_policy(Policy="{"),
        400,
        "MalformedPolicy",
        before=(with_policy,),
        then=_policy_stays,
    ),
    Case(
        "PutBucketPolicy",
        "no statement",
        lambda s: s.dev.put_bucket_policy(Policy='{"Version":"2012-10-17","Statement":[]}'),
        400,
        "MalformedPolicy",
        before=(with_policy,),
        then=_policy_stays,
    ),
    Case(
        "PutBucketPolicy",
        "a resource of another bucket",
        lambda s: s.dev.put_bucket_policy(Policy=_policy(s, Resource=f"arn:aws:s3:::{FOREIGN}/*")),
        400,
        "MalformedPolicy",
        before=(with_policy,),
        then=_policy_stays,
    ),
    Case(
        "PutBucketPolicy",
        "an effect that is unknown",
        lambda s: s.dev.put_bucket_policy(Policy=_policy(s, Effect="Perhaps")),
        400,
        "MalformedPolicy",
        before=(with_policy,),
        then=_policy_stays,
    ),
    *closed("bucket_policy", {"Policy": _POLICY_OF_NOTHING}),
]


_ACL = [
    Case(
        "GetBucketAcl",
        "a private bucket",
        lambda s: s.dev.get_bucket_acl(),
        before=(own,),
        then=lambda s, a: ([g["Permission"] for g in a["Grants"]], ["FULL_CONTROL"]),
    ),
    Case(
        "PutBucketAcl",
        "public-read lists, and reads nothing",
        lambda s: s.dev.put_bucket_acl(ACL="public-read"),
        before=(own, there),
        then=lambda s, a: (
            (s.nobody.list_objects_v2().status, s.nobody.get_object(Key=s.there).code),
            (200, "AccessDenied"),
        ),
    ),
    Case(
        "PutBucketAcl",
        "public-read-write writes",
        lambda s: s.dev.put_bucket_acl(ACL="public-read-write"),
        before=(own,),
        then=lambda s, a: (s.nobody.put_object(Key=s.key, Body=b"x").status, 200),
    ),
    Case(
        "PutBucketAcl",
        "private again",
        lambda s: (s.dev.put_bucket_acl(ACL="public-read"), s.dev.put_bucket_acl(ACL="private"))[1],
        before=(own,),
        then=lambda s, a: (s.nobody.list_objects_v2().code, "AccessDenied"),
    ),
    Case(
        "PutBucketAcl",
        "an ACL that is unknown",
        lambda s: s.dev.put_bucket_acl(ACL="mine"),
        400,
        "InvalidArgument",
        before=(own,),
    ),
    Case(
        "PutBucketAcl",
        "an ACL and grants at once",
        lambda s: s.dev.put_bucket_acl(
            ACL="private", GrantRead='uri="http://acs.amazonaws.com/groups/global/AllUsers"'
        ),
        400,
        "InvalidRequest",
        before=(own,),
    ),
    Case(
        "PutBucketAcl",
        "no XML",
        lambda s: s.raw_document("acl", b"<Access"),
        400,
        "MalformedACLError",
        before=(own,),
    ),
    Case(
        "PutBucketAcl",
        "nothing at all",
        lambda s: s.raw_document("acl", b""),
        400,
        "MissingSecurityHeader",
        before=(own,),
    ),
    *closed("bucket_acl", {"ACL": "public-read"}),
]


CASES = [*_TAGGING, *_POLICY, *_ACL]
