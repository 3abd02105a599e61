"""OBS's own signature, in the `Authorization: OBS …` header and in the query (`AccessKeyId`)."""

from __future__ import annotations

from trainshed.api.obs.signatures import shared_secret
from trainshed.api.obs.signatures.claim import Claim, SignedRequest

__all__ = ["OBS", "OBS_RESOURCES", "check", "read_header", "read_query"]

# As the OBS SDK has them.
OBS_RESOURCES = frozenset(
    [
        "acl",
        "append",
        "backtosource",
        "bucketstatus",
        "cors",
        "delete",
        "deletebucket",
        "directcoldaccess",
        "dispolicy",
        "encryption",
        "fileinterface",
        "inventory",
        "length",
        "lifecycle",
        "location",
        "logging",
        "metadata",
        "modify",
        "name",
        "notification",
        "object-lock",
        "obscompresspolicy",
        "partnumber",
        "policy",
        "policystatus",
        "position",
        "publicaccessblock",
        "quota",
        "rename",
        "replication",
        "requestpayment",
        "response-cache-control",
        "response-content-disposition",
        "response-content-encoding",
        "response-content-language",
        "response-content-type",
        "response-expires",
        "restore",
        "retention",
        "storageclass",
        "storageinfo",
        "storagepolicy",
        "tagging",
        "torrent",
        "truncate",
        "uploadid",
        "uploads",
        "versionid",
        "versioning",
        "versions",
        "website",
        "x-image-process",
        "x-image-save-bucket",
        "x-image-save-object",
        "x-obs-accesslabel",
        "x-oss-process",
    ]
)

OBS = shared_secret.Dialect(word="OBS", key_parameter="AccessKeyId", prefix="x-obs-", resources=OBS_RESOURCES)


def read_header(request: SignedRequest) -> Claim:
    """The claim in the header."""
    return shared_secret.read_header(OBS, request)


def read_query(request: SignedRequest) -> Claim:
    """The claim in a presigned URL."""
    return shared_secret.read_query(OBS, request)


def check(claim: Claim, request: SignedRequest, secret: str, now: float) -> None:
    """Refuse the request unless it was signed with the secret, in time."""
    shared_secret.check(OBS, claim, request, secret, now)
