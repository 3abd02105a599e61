"""AWS Signature Version 2, in the `Authorization: AWS …` header and in the query (`AWSAccessKeyId`)."""

from __future__ import annotations

from trainshed.api.obs.signatures import shared_secret
from trainshed.api.obs.signatures.claim import Claim, SignedRequest
from trainshed.api.obs.signatures.obs_native import OBS_RESOURCES

__all__ = ["V2", "check", "read_header", "read_query"]

# As botocore has them, beside those that the OBS SDK signs when it speaks V2.
_AWS_RESOURCES = frozenset(
    [
        "accelerate",
        "acl",
        "analytics",
        "cors",
        "defaultobjectacl",
        "delete",
        "inventory",
        "lifecycle",
        "location",
        "logging",
        "metrics",
        "notification",
        "object-lock",
        "partnumber",
        "policy",
        "replication",
        "requestpayment",
        "restore",
        "select",
        "select-type",
        "storageclass",
        "tagging",
        "torrent",
        "uploadid",
        "uploads",
        "versionid",
        "versioning",
        "versions",
        "website",
    ]
)

V2 = shared_secret.Dialect(
    word="AWS",
    key_parameter="AWSAccessKeyId",
    prefix="x-amz-",
    resources=_AWS_RESOURCES | OBS_RESOURCES,
)


def read_header(request: SignedRequest) -> Claim:
    """The claim in the header."""
    return shared_secret.read_header(V2, request)


def read_query(request: SignedRequest) -> Claim:
    """The claim in a presigned URL."""
    return shared_secret.read_query(V2, request)


def check(claim: Claim, request: SignedRequest, secret: str, now: float) -> None:
    """Refuse the request unless it was signed with the secret, in time."""
    shared_secret.check(V2, claim, request, secret, now)
