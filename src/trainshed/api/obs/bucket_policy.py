"""The policy of a bucket: who beside its workspace may use it."""

from __future__ import annotations

from trainshed.api.obs.body import receive_document
from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.visit import Visit
from trainshed.model.bucket_policy import parse_policy
from trainshed.model.errors import InvalidInput

__all__ = ["delete_policy", "get_policy", "put_policy"]

_LONGEST = 20 << 10


async def get_policy(visit: Visit) -> None:
    """The policy as it was set."""
    await visit.do(visit.owned)
    policy = await visit.do(lambda: visit.store.bucket_document(visit.bucket, "policy"))
    if not policy:
        raise S3Error("NoSuchBucketPolicy", "The bucket policy does not exist", BucketName=visit.bucket)
    await visit.answer(200, {"content-type": "application/json"}, policy.encode())


async def put_policy(visit: Visit) -> None:
    """Set a policy, if all of it can be followed."""
    await visit.do(visit.owned)
    body = await receive_document(visit)
    try:
        text = body.decode()
        if len(body) > _LONGEST:
            raise S3Error("MalformedPolicy", "The policy is longer than 20 KB.")
        parse_policy(text, visit.bucket)
    except (UnicodeDecodeError, InvalidInput) as error:
        message = error.message if isinstance(error, InvalidInput) else "The policy is no UTF-8."
        raise S3Error("MalformedPolicy", message) from None
    await visit.do(lambda: visit.store.set_bucket_document(visit.bucket, "policy", text))
    await visit.answer(204)


async def delete_policy(visit: Visit) -> None:
    """Remove the policy."""
    await visit.do(visit.owned)
    await visit.do(lambda: visit.store.set_bucket_document(visit.bucket, "policy", ""))
    await visit.answer(204)
