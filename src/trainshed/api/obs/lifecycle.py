"""The lifecycle rules of a bucket: what is removed, and when."""

from __future__ import annotations

from trainshed.api.obs.body import receive_document
from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.visit import Visit
from trainshed.api.obs.xml_codec import malformed_xml, parse_xml
from trainshed.model.errors import InvalidInput
from trainshed.store.lifecycle import parse_lifecycle

__all__ = ["delete_lifecycle", "get_lifecycle", "put_lifecycle"]


async def get_lifecycle(visit: Visit) -> None:
    """The rules as they were set."""
    await visit.do(visit.owned)
    rules = await visit.do(lambda: visit.store.bucket_document(visit.bucket, "lifecycle"))
    if not rules:
        raise S3Error(
            "NoSuchLifecycleConfiguration",
            "The lifecycle configuration does not exist",
            BucketName=visit.bucket,
        )
    await visit.answer(200, {"content-type": "application/xml"}, rules.encode())


async def put_lifecycle(visit: Visit) -> None:
    """Set rules, if all of them can be followed."""
    await visit.do(visit.owned)
    body = await receive_document(visit)
    parse_xml(body, "LifecycleConfiguration")
    try:
        text = body.decode()
        parse_lifecycle(text)
    except UnicodeDecodeError:
        raise malformed_xml() from None
    except InvalidInput as error:
        raise S3Error("MalformedXML", str(error)) from None
    await visit.do(lambda: visit.store.set_bucket_document(visit.bucket, "lifecycle", text))
    await visit.answer(200)


async def delete_lifecycle(visit: Visit) -> None:
    """Remove the rules."""
    await visit.do(visit.owned)
    await visit.do(lambda: visit.store.set_bucket_document(visit.bucket, "lifecycle", ""))
    await visit.answer(204)
