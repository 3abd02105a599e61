"""Rules of a bucket: CORS and lifecycle; and what cannot be set here."""

from __future__ import annotations

from typing import Any

from s3_table.case import Answer, Case
from s3_table.setting_steps import closed
from s3_table.stage import Stage, own, there

__all__ = ["CASES"]

_CORS = {
    "CORSRules": [
        {"AllowedOrigins": ["https://lab.example"], "AllowedMethods": ["GET"], "AllowedHeaders": ["x-*"]}
    ]
}
_LIFECYCLE = {
    "Rules": [{"ID": "r", "Status": "Enabled", "Filter": {"Prefix": "tmp/"}, "Expiration": {"Days": 3}}]
}


def with_cors(stage: Stage) -> None:
    """A bucket that pages of one origin may read."""
    own(stage)
    stage.dev.put_bucket_cors(CORSConfiguration=_CORS)


def with_lifecycle(stage: Stage) -> None:
    """A bucket with a rule that lets objects expire."""
    own(stage)
    stage.dev.put_bucket_lifecycle_configuration(LifecycleConfiguration=_LIFECYCLE)


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


def _cors_stays(s: Stage, a: Answer) -> tuple[object, object]:
    # Zero seconds, where nothing was said of them, say nothing.
    found = [dict(rule) for rule in s.dev.get_bucket_cors()["CORSRules"]]
    for rule in found:
        if not rule.get("MaxAgeSeconds"):
            rule.pop("MaxAgeSeconds", None)
    return found, _CORS["CORSRules"]


def _rules_stay(s: Stage, a: Answer) -> tuple[object, object]:
    return _rules(s), _LIFECYCLE["Rules"]


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
    *closed("bucket_cors", {"CORSConfiguration": _CORS}),
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
    *closed("bucket_lifecycle", {"LifecycleConfiguration": _LIFECYCLE}),
]


_NEVER_SET = [
    ("GetBucketReplication", "get_bucket_replication", "ReplicationConfigurationNotFoundError"),
    ("GetBucketWebsite", "get_bucket_website", "NoSuchWebsiteConfiguration"),
    ("GetObjectLockConfiguration", "get_object_lock_configuration", "ObjectLockConfigurationNotFoundError"),
    ("GetPublicAccessBlock", "get_public_access_block", "NoSuchPublicAccessBlockConfiguration"),
    ("GetBucketOwnershipControls", "get_bucket_ownership_controls", "OwnershipControlsNotFoundError"),
]

_OTHERS = [
    Case(
        "GetBucketEncryption",
        "none",
        lambda s: s.dev.get_bucket_encryption(),
        404,
        "ServerSideEncryptionConfigurationNotFoundError",
    ),
    *(
        Case(operation, "none", lambda s, m=method: getattr(s.dev, m)(), 404, code)
        for operation, method, code in _NEVER_SET
    ),
    Case(
        "GetBucketAccelerateConfiguration",
        "none",
        lambda s: s.dev.get_bucket_accelerate_configuration(),
        then=lambda s, a: (a.get("Status"), None),
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


CASES = [*_CORS_CASES, *_LIFECYCLE_CASES, *_OTHERS]
