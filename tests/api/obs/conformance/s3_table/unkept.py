"""Headers on which a client would rely: what they ask for is done, or the request is refused."""

from __future__ import annotations

from typing import Any

from s3_table.case import Answer, Case
from s3_table.stage import CONTENT, FOREIGN, Stage, there

__all__ = ["CASES"]


def _headers(**headers: str) -> Any:
    named = {f"x-amz-{name.replace('_', '-')}": value for name, value in headers.items()}
    return lambda s: s.raw("PUT", s.path(s.key), headers=named, body=b"x")


def _owner(stage: Stage) -> str:
    return str(stage.dev.list_buckets()["Owner"]["ID"])


def _nothing(s: Stage, a: Answer) -> tuple[object, object]:
    return s.dev.head_object(Key=s.key).status, 404


CASES = [
    Case(
        "PutObject",
        "encryption with a key that is not there",
        _headers(server_side_encryption="aws:kms", server_side_encryption_aws_kms_key_id="none"),
        501,
        "NotImplemented",
        then=_nothing,
    ),
    Case(
        "GetObject",
        "a key for what is not encrypted",
        lambda s: s.raw(
            "GET",
            s.path(s.there),
            headers={
                "x-amz-server-side-encryption-customer-algorithm": "AES256",
                "x-amz-server-side-encryption-customer-key": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
                "x-amz-server-side-encryption-customer-key-md5": "hRasmdxgYDKV3nvbahU1MA==",
            },
        ),
        400,
        "InvalidRequest",
        before=(there,),
    ),
    Case(
        "PutObject",
        "a lock in a bucket without locks",
        _headers(object_lock_mode="COMPLIANCE", object_lock_retain_until_date="2099-01-01T00:00:00Z"),
        400,
        "InvalidRequest",
        then=_nothing,
    ),
    Case(
        "PutObject",
        "the owner that the client expects",
        lambda s: s.dev.put_object(Key=s.key, Body=b"x", ExpectedBucketOwner=_owner(s)),
        then=lambda s, a: (s.read(s.key), b"x"),
    ),
    Case(
        "PutObject",
        "another owner than the client expects",
        lambda s: s.dev.put_object(Key=s.key, Body=b"x", ExpectedBucketOwner="111122223333"),
        403,
        "AccessDenied",
        then=_nothing,
    ),
    Case(
        "GetObject",
        "another owner than the client expects",
        lambda s: s.dev.get_object(Key=s.there, ExpectedBucketOwner="111122223333"),
        403,
        "AccessDenied",
        before=(there,),
    ),
    Case(
        "DeleteObject",
        "another owner than the client expects",
        lambda s: s.dev.delete_object(Key=s.there, ExpectedBucketOwner="111122223333"),
        403,
        "AccessDenied",
        before=(there,),
        then=lambda s, a: (s.read(s.there), CONTENT),
    ),
    Case(
        "ListObjectsV2",
        "another owner than the client expects",
        lambda s: s.dev.list_objects_v2(ExpectedBucketOwner="111122223333"),
        403,
        "AccessDenied",
    ),
    Case(
        "CopyObject",
        "another owner of the source than the client expects",
        lambda s: s.stranger.copy_object(
            Bucket=FOREIGN,
            Key=s.key,
            CopySource={"Bucket": s.bucket, "Key": s.there},
            ExpectedSourceBucketOwner="111122223333",
        ),
        403,
        "AccessDenied",
        before=(lambda s: s.notes.update(a=s.dev.put_object(Key=s.there, Body=b"x", ACL="public-read")),),
    ),
]
