"""Settings of a bucket that nobody can change here, told as they are where nobody changed them."""

from __future__ import annotations

from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.visit import Visit
from trainshed.api.obs.xml_codec import Content

__all__ = ["FIXED_SETTINGS", "get_setting"]

# The document of a setting that has a value without being set: its name, and what is in it.
_DOCUMENTS: dict[str, tuple[str, Content]] = {
    "accelerate": ("AccelerateConfiguration", []),
    "logging": ("BucketLoggingStatus", []),
    "notification": ("NotificationConfiguration", []),
    "requestPayment": ("RequestPaymentConfiguration", [("Payer", "BucketOwner")]),
    # OBS's own. Workspaces have a quota here, buckets have none.
    "quota": ("Quota", [("StorageQuota", 0)]),
    "storageClass": ("StorageClass", "STANDARD"),
    "storagePolicy": ("StoragePolicy", [("DefaultStorageClass", "STANDARD")]),
}
# The error of a setting that is not there until it is set.
_MISSING = {
    "object-lock": (
        "ObjectLockConfigurationNotFoundError",
        "Object Lock configuration does not exist for this bucket",
    ),
    "ownershipControls": (
        "OwnershipControlsNotFoundError",
        "The bucket ownership controls were not found",
    ),
    "publicAccessBlock": (
        "NoSuchPublicAccessBlockConfiguration",
        "The public access block configuration was not found",
    ),
    "replication": (
        "ReplicationConfigurationNotFoundError",
        "The replication configuration was not found",
    ),
    "website": (
        "NoSuchWebsiteConfiguration",
        "The specified bucket does not have a website configuration",
    ),
}
FIXED_SETTINGS = frozenset({*_DOCUMENTS, *_MISSING})


async def get_setting(visit: Visit, name: str) -> None:
    """A setting as it is where nobody changed it."""
    await visit.do(visit.readable)
    if name in _MISSING:
        code, message = _MISSING[name]
        raise S3Error(code, message, BucketName=visit.bucket)
    await visit.answer_xml(*_DOCUMENTS[name])
