"""The lifecycle rules of a bucket; and settings that cannot be set here."""

from __future__ import annotations

from typing import Any

from s3_table.case import Answer, Case
from s3_table.setting_steps import closed
from s3_table.stage import Stage, own, there

__all__ = ["CASES"]

_LIFECYCLE = {
    "Rules": [{"ID": "r", "Status": "Enabled", "Filter": {"Prefix": "tmp/"}, "Expiration": {"Days": 3}}]
}


def with_lifecycle(stage: Stage) -> None:
    """A bucket with a rule that lets objects expire."""
    own(stage)
    stage.dev.put_bucket_lifecycle_configuration(LifecycleConfiguration=_LIFECYCLE)


def _lifecycle(**rule: Any) -> Any:
    whole = {"ID": "n", "Status": "Enabled", "Filter": {"Prefix": ""}, **rule}
    return lambda s: s.dev.put_bucket_lifecycle_configuration(
        LifecycleConfiguration={
            "Rules": [{name: value for name, value in whole.items() if value is not None}]
        }
    )


def _rules(stage: Stage) -> Any:
    return stage.dev.get_bucket_lifecycle_configuration().get("Rules")


def _rules_stay(s: Stage, a: Answer) -> tuple[object, object]:
    return _rules(s), _LIFECYCLE["Rules"]


_NEVER_SET = [
    ("GetBucketReplication", "get_bucket_replication", "ReplicationConfigurationNotFoundError"),
    ("GetBucketWebsite", "get_bucket_website", "NoSuchWebsiteConfiguration"),
    ("GetObjectLockConfiguration", "get_object_lock_configuration", "ObjectLockConfigurationNotFoundError"),
    ("GetPublicAccessBlock", "get_public_access_block", "NoSuchPublicAccessBlockConfiguration"),
    ("GetBucketOwnershipControls", "get_bucket_ownership_controls", "OwnershipControlsNotFoundError"),
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
        "how many older versions stay, which is not kept",
        _lifecycle(NoncurrentVersionExpiration={"NoncurrentDays": 1, "NewerNoncurrentVersions": 3}),
        501,
        "NotImplemented",
        before=(with_lifecycle,),
        then=_rules_stay,
    ),
    Case(
        "PutBucketLifecycle",
        "another storage class, of which there is one only",
        _lifecycle(Expiration={"Days": 9}, Transitions=[{"Days": 1, "StorageClass": "GLACIER"}]),
        501,
        "NotImplemented",
        before=(with_lifecycle,),
        then=_rules_stay,
    ),
    Case(
        "PutBucketLifecycle",
        "days and a date at once",
        _lifecycle(Expiration={"Days": 1, "Date": "2099-01-01T00:00:00Z"}),
        400,
        "MalformedXML",
        before=(with_lifecycle,),
        then=_rules_stay,
    ),
    Case(
        "PutBucketLifecycle",
        "uploads with tags, which they have not",
        _lifecycle(
            Filter={"Tag": {"Key": "a", "Value": "1"}},
            AbortIncompleteMultipartUpload={"DaysAfterInitiation": 1},
        ),
        400,
        "InvalidRequest",
        before=(with_lifecycle,),
        then=_rules_stay,
    ),
    Case(
        "PutBucketLifecycle",
        "a prefix beside a filter",
        _lifecycle(Prefix="a/", Expiration={"Days": 1}),
        400,
        "InvalidRequest",
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


CASES = [*_LIFECYCLE_CASES, *_OTHERS]
