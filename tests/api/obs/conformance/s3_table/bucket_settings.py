"""What is set for a whole bucket: tags, policy, ACL, CORS, lifecycle; and what cannot be set here."""

from __future__ import annotations

import json
from typing import Any

from s3_table.case import Answer, Case
from s3_table.stage import CONTENT, FOREIGN, MISSING, Stage, own, there

__all__ = ["CASES"]

_TAGS = {"TagSet": [{"Key": "a", "Value": "1"}]}
_CORS = {
    "CORSRules": [
        {"AllowedOrigins": ["https://lab.example"], "AllowedMethods": ["GET"], "AllowedHeaders": ["x-*"]}
    ]
}
_LIFECYCLE = {
    "Rules": [{"ID": "r", "Status": "Enabled", "Filter": {"Prefix": "tmp/"}, "Expiration": {"Days": 3}}]
}


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


def with_cors(stage: Stage) -> None:
    """A bucket that pages of one origin may read."""
    own(stage)
    stage.dev.put_bucket_cors(CORSConfiguration=_CORS)


def with_lifecycle(stage: Stage) -> None:
    """A bucket with a rule that lets objects expire."""
    own(stage)
    stage.dev.put_bucket_lifecycle_configuration(LifecycleConfiguration=_LIFECYCLE)


def _everybody_reads(stage: Stage) -> bytes:
    return stage.nobody.get_object(Key=stage.there).body


def _preflight(origin: str = "https://lab.example", method: str = "GET", headers: str = "") -> Any:
    sent = {
        "origin": origin,
        "access-control-request-method": method,
        "access-control-request-headers": headers,
    }
    return lambda s: s.target.send(
        "OPTIONS",
        s.path("x"),
        {"host": s.target.host, **{name: value for name, value in sent.items() if value}},
    )


def _lifecycle(**rule: Any) -> Any:
    whole = {"ID": "n", "Status": "Enabled", "Filter": {"Prefix": ""}, **rule}
    return lambda s: s.dev.put_bucket_lifecycle_configuration(
        LifecycleConfiguration={
            "Rules": [{name: value for name, value in whole.items() if value is not None}]
        }
    )


def _rules(stage: Stage) -> Any:
    return stage.dev.get_bucket_lifecycle_configuration().get("Rules")


def _tags_stay(s: Stage, a: Answer) -> tuple[object, object]:
    return s.dev.get_bucket_tagging()["TagSet"], _TAGS["TagSet"]


def _cors_stays(s: Stage, a: Answer) -> tuple[object, object]:
    return s.dev.get_bucket_cors()["CORSRules"], _CORS["CORSRules"]


def _rules_stay(s: Stage, a: Answer) -> tuple[object, object]:
    return _rules(s), _LIFECYCLE["Rules"]


def _policy_stays(s: Stage, a: Answer) -> tuple[object, object]:
    return _everybody_reads(s), CONTENT


def _closed(setting: str, put: dict[str, Any]) -> list[Case]:
    """Who may not see or change a setting: strangers, viewers (who do not change), nobody."""
    name = "".join(word.capitalize() for word in setting.split("_"))
    cases = []
    for verb, arguments in (("get", {}), ("put", put), ("delete", {})):
        if verb == "delete" and setting == "bucket_acl":
            continue
        # Rules of a lifecycle are put and got by a longer name than they are deleted by.
        method = f"{verb}_{setting}"
        if setting == "bucket_lifecycle" and verb != "delete":
            method += "_configuration"
        title = f"{verb.capitalize()}{name}"
        cases += [
            Case(
                title,
                "a missing bucket",
                lambda s, m=method, a=arguments: getattr(s.dev, m)(Bucket=MISSING, **a),
                404,
                "NoSuchBucket",
            ),
            Case(
                title,
                "somebody else's bucket",
                lambda s, m=method, a=arguments: getattr(s.dev, m)(Bucket=FOREIGN, **a),
                403,
                "AccessDenied",
            ),
            Case(
                title,
                "anonymous",
                lambda s, m=method, a=arguments: getattr(s.nobody, m)(**a),
                403,
                "AccessDenied",
            ),
        ]
        if verb != "get":
            cases.append(
                Case(
                    title,
                    "one who may only read",
                    lambda s, m=method, a=arguments: getattr(s.viewer, m)(**a),
                    403,
                    "AccessDenied",
                    before=(own,),
                )
            )
    return cases


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
    *_closed("bucket_tagging", {"Tagging": _TAGS}),
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
    Case(
        "PutBucketPolicy",
        "more than 20 KB",
        lambda s: s.dev.put_bucket_policy(Policy=_policy(s, Sid="x" * 20_480)),
        400,
        "MalformedPolicy",
        before=(with_policy,),
        then=_policy_stays,
    ),
    *_closed("bucket_policy", {"Policy": "{}"}),
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
    *_closed("bucket_acl", {"ACL": "public-read"}),
]

_CORS_CASES = [
    Case(
        "PutBucketCors",
        "a rule",
        lambda s: s.dev.put_bucket_cors(CORSConfiguration=_CORS),
        before=(own,),
        then=_cors_stays,
    ),
    Case(
        "GetBucketCors",
        "some rules",
        lambda s: s.dev.get_bucket_cors(),
        before=(with_cors,),
        then=_cors_stays,
    ),
    Case(
        "GetBucketCors",
        "none",
        lambda s: s.dev.get_bucket_cors(),
        404,
        "NoSuchCORSConfiguration",
        before=(own,),
    ),
    Case(
        "DeleteBucketCors",
        "all",
        lambda s: s.dev.delete_bucket_cors(),
        204,
        before=(with_cors,),
        then=lambda s, a: (s.dev.get_bucket_cors().code, "NoSuchCORSConfiguration"),
    ),
    Case(
        "PutBucketCors",
        "no rule",
        lambda s: s.raw_document("cors", b"<CORSConfiguration/>"),
        400,
        "MalformedXML",
        before=(with_cors,),
        then=_cors_stays,
    ),
    Case(
        "PutBucketCors",
        "no XML",
        lambda s: s.raw_document("cors", b"{}"),
        400,
        "MalformedXML",
        before=(with_cors,),
        then=_cors_stays,
    ),
    Case(
        "PutBucketCors",
        "a method that is unknown",
        lambda s: s.dev.put_bucket_cors(
            CORSConfiguration={"CORSRules": [{"AllowedOrigins": ["*"], "AllowedMethods": ["TRACE"]}]}
        ),
        400,
        "InvalidRequest",
        before=(with_cors,),
        then=_cors_stays,
    ),
    Case(
        "PutBucketCors",
        "two stars in an origin",
        lambda s: s.dev.put_bucket_cors(
            CORSConfiguration={"CORSRules": [{"AllowedOrigins": ["http://*.*"], "AllowedMethods": ["GET"]}]}
        ),
        400,
        "InvalidRequest",
        before=(with_cors,),
        then=_cors_stays,
    ),
    Case(
        "PutBucketCors",
        "a rule without an origin",
        lambda s: s.raw_document(
            "cors",
            b"<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>",
        ),
        400,
        "MalformedXML",
        before=(with_cors,),
        then=_cors_stays,
    ),
    Case(
        "PutBucketCors",
        "a hundred and one rules",
        lambda s: s.dev.put_bucket_cors(CORSConfiguration={"CORSRules": _CORS["CORSRules"] * 101}),
        400,
        "MalformedXML",
        before=(with_cors,),
        then=_cors_stays,
    ),
    *_closed("bucket_cors", {"CORSConfiguration": _CORS}),
    Case(
        "OPTIONS",
        "an origin that is allowed",
        _preflight(headers="x-amz-date"),
        before=(with_cors,),
        then=lambda s, a: (
            (a.headers.get("access-control-allow-origin"), a.headers.get("access-control-allow-headers")),
            ("https://lab.example", "x-amz-date"),
        ),
    ),
    Case(
        "OPTIONS",
        "another origin",
        _preflight("https://evil.example"),
        403,
        "AccessForbidden",
        before=(with_cors,),
    ),
    Case(
        "OPTIONS", "another method", _preflight(method="DELETE"), 403, "AccessForbidden", before=(with_cors,)
    ),
    Case(
        "OPTIONS",
        "another header",
        _preflight(headers="authorization"),
        403,
        "AccessForbidden",
        before=(with_cors,),
    ),
    Case("OPTIONS", "a bucket without rules", _preflight(), 403, "AccessForbidden", before=(own,)),
    Case("OPTIONS", "without an origin", _preflight(origin=""), 400, "BadRequest", before=(with_cors,)),
    Case("OPTIONS", "without a method", _preflight(method=""), 400, "BadRequest", before=(with_cors,)),
    Case(
        "OPTIONS",
        "the answer to the page itself",
        lambda s: s.raw("GET", f"/{s.bucket}", later={"origin": "https://lab.example"}),
        before=(with_cors,),
        then=lambda s, a: (a.headers.get("access-control-allow-origin"), "https://lab.example"),
    ),
]

_LIFECYCLE_CASES = [
    Case(
        "PutBucketLifecycle",
        "a rule",
        _lifecycle(Expiration={"Days": 1}),
        before=(own,),
        then=lambda s, a: ([r["Expiration"] for r in _rules(s)], [{"Days": 1}]),
    ),
    Case(
        "PutBucketLifecycle",
        "older versions and uploads",
        _lifecycle(
            NoncurrentVersionExpiration={"NoncurrentDays": 2},
            AbortIncompleteMultipartUpload={"DaysAfterInitiation": 3},
        ),
        before=(own,),
        then=lambda s, a: (len(_rules(s)), 1),
    ),
    Case(
        "GetBucketLifecycle",
        "some rules",
        lambda s: s.dev.get_bucket_lifecycle_configuration(),
        before=(with_lifecycle,),
        then=_rules_stay,
    ),
    Case(
        "GetBucketLifecycle",
        "none",
        lambda s: s.dev.get_bucket_lifecycle_configuration(),
        404,
        "NoSuchLifecycleConfiguration",
        before=(own,),
    ),
    Case(
        "DeleteBucketLifecycle",
        "all",
        lambda s: s.dev.delete_bucket_lifecycle(),
        204,
        before=(with_lifecycle,),
        then=lambda s, a: (s.dev.get_bucket_lifecycle_configuration().code, "NoSuchLifecycleConfiguration"),
    ),
    Case(
        "PutBucketLifecycle",
        "no rule",
        lambda s: s.raw_document("lifecycle", b"<LifecycleConfiguration/>"),
        400,
        "MalformedXML",
        before=(with_lifecycle,),
        then=_rules_stay,
    ),
    Case(
        "PutBucketLifecycle",
        "no XML",
        lambda s: s.raw_document("lifecycle", b"rules"),
        400,
        "MalformedXML",
        before=(with_lifecycle,),
        then=_rules_stay,
    ),
    Case(
        "PutBucketLifecycle",
        "a status that is unknown",
        _lifecycle(Status="On", Expiration={"Days": 1}),
        400,
        "MalformedXML",
        before=(with_lifecycle,),
        then=_rules_stay,
    ),
    Case(
        "PutBucketLifecycle",
        "a rule that does nothing",
        _lifecycle(),
        400,
        "InvalidRequest",
        before=(with_lifecycle,),
        then=_rules_stay,
    ),
    Case(
        "PutBucketLifecycle",
        "zero days",
        _lifecycle(Expiration={"Days": 0}),
        400,
        "InvalidArgument",
        before=(with_lifecycle,),
        then=_rules_stay,
    ),
    Case(
        "PutBucketLifecycle",
        "two rules of one name",
        lambda s: s.dev.put_bucket_lifecycle_configuration(
            LifecycleConfiguration={"Rules": [*_LIFECYCLE["Rules"], *_LIFECYCLE["Rules"]]}
        ),
        400,
        "InvalidArgument",
        before=(with_lifecycle,),
        then=_rules_stay,
    ),
    Case(
        "PutBucketLifecycle",
        "a name of 256 characters",
        _lifecycle(ID="r" * 256, Expiration={"Days": 1}),
        400,
        "InvalidArgument",
        before=(with_lifecycle,),
        then=_rules_stay,
    ),
    *_closed("bucket_lifecycle", {"LifecycleConfiguration": _LIFECYCLE}),
]

_OTHERS = [
    Case(
        "GetBucketEncryption",
        "none",
        lambda s: s.dev.get_bucket_encryption(),
        404,
        "ServerSideEncryptionConfigurationNotFoundError",
    ),
    Case(
        "GetBucketRequestPayment",
        "the owner",
        lambda s: s.dev.get_bucket_request_payment(),
        then=lambda s, a: (a["Payer"], "BucketOwner"),
    ),
    Case(
        "GetBucketLogging",
        "none",
        lambda s: s.dev.get_bucket_logging(),
        then=lambda s, a: (a.get("LoggingEnabled"), None),
    ),
    Case(
        "GetBucketNotificationConfiguration",
        "none",
        lambda s: s.dev.get_bucket_notification_configuration(),
        then=lambda s, a: (a.get("TopicConfigurations"), None),
    ),
    Case(
        "PutBucketReplication",
        "is not taken silently",
        lambda s: s.raw_document("replication", b"<ReplicationConfiguration/>"),
        501,
        "NotImplemented",
    ),
    Case(
        "PutBucketWebsite",
        "is not taken silently",
        lambda s: s.raw_document("website", b"<WebsiteConfiguration/>"),
        501,
        "NotImplemented",
    ),
    Case(
        "RestoreObject",
        "is not taken silently",
        lambda s: s.raw_document("restore", b"<RestoreRequest/>", s.there, "POST"),
        501,
        "NotImplemented",
        before=(there,),
    ),
    Case(
        "PutObject",
        "a parameter that is unknown is not overlooked",
        lambda s: s.raw("PUT", s.path(s.key), query=[("torrential", "")], body=b"x"),
        501,
        "NotImplemented",
    ),
]

CASES = [*_TAGGING, *_POLICY, *_ACL, *_CORS_CASES, *_LIFECYCLE_CASES, *_OTHERS]
