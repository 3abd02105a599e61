"""What somebody who is no member of a bucket's workspace, or has no name at all, may do with it."""

from __future__ import annotations

from trainshed.model.bucket_policy import acl_allows, parse_policy, policy_allows
from trainshed.model.errors import NotFound
from trainshed.services.identity import Caller
from trainshed.services.platform import Platform

__all__ = ["may_list_shared", "may_read_shared", "may_write_shared"]


def may_list_shared(platform: Platform, caller: Caller | None, bucket: str) -> bool:
    """Whether the bucket's ACL or policy lets the caller list it."""
    acl = platform.store.bucket_document(bucket, "acl")
    return acl_allows(acl, "read", is_known=caller is not None) or _policy(
        platform, caller, "ListBucket", bucket
    )


def may_read_shared(
    platform: Platform, caller: Caller | None, bucket: str, key: str, version_id: str = ""
) -> bool:
    """Whether the object's ACL or the bucket's policy lets the caller read the object."""
    if platform.store.bucket_document(bucket, "acl").endswith("-delivered"):
        return True
    try:
        acl = platform.store.info(bucket, key, version_id).attributes.get("acl", "")
    except NotFound:
        acl = ""
    return acl_allows(acl, "read", is_known=caller is not None) or _policy(
        platform, caller, "GetObject", bucket, key
    )


def may_write_shared(platform: Platform, caller: Caller | None, bucket: str, key: str, action: str) -> bool:
    """Whether the bucket's ACL or policy lets the caller do this (PutObject, DeleteObject) to the object."""
    acl = platform.store.bucket_document(bucket, "acl")
    return acl_allows(acl, "write", is_known=caller is not None) or _policy(
        platform, caller, action, bucket, key
    )


def _policy(platform: Platform, caller: Caller | None, action: str, bucket: str, key: str = "") -> bool:
    text = platform.store.bucket_document(bucket, "policy")
    if not text:
        return False
    return policy_allows(
        parse_policy(text, bucket), caller.workspace_id if caller else "", action, bucket, key
    )
