"""The lifecycle rules of a bucket: what is removed, and when."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from trainshed.api.obs.body import receive_document
from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.visit import Visit
from trainshed.api.obs.xml_codec import child, children, malformed_xml, parse_xml, text_of
from trainshed.model.errors import InvalidInput
from trainshed.store.lifecycle import parse_lifecycle

__all__ = ["delete_lifecycle", "get_lifecycle", "put_lifecycle"]

_LONGEST_NAME = 255
# What the rules' own reader calls its errors.
_CODES = {"invalid_argument": "InvalidArgument", "not_implemented": "NotImplemented"}
# What each action says of itself.
_DETAILS = {
    "Expiration": ("Days", "Date", "ExpiredObjectDeleteMarker"),
    "NoncurrentVersionExpiration": ("NoncurrentDays",),
    "AbortIncompleteMultipartUpload": ("DaysAfterInitiation",),
}
_ACTIONS = (
    "Expiration",
    "NoncurrentVersionExpiration",
    "AbortIncompleteMultipartUpload",
    "Transition",
    "NoncurrentVersionTransition",
)


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
    _check_rules(parse_xml(body, "LifecycleConfiguration"))
    try:
        text = body.decode()
        parse_lifecycle(text)
    except UnicodeDecodeError:
        raise malformed_xml() from None
    except InvalidInput as error:
        raise S3Error(_CODES.get(error.code, "MalformedXML"), str(error)) from None
    await visit.do(lambda: visit.store.set_bucket_document(visit.bucket, "lifecycle", text))
    await visit.answer(200)


async def delete_lifecycle(visit: Visit) -> None:
    """Remove the rules."""
    await visit.do(visit.owned)
    await visit.do(lambda: visit.store.set_bucket_document(visit.bucket, "lifecycle", ""))
    await visit.answer(204)


def _check_rules(root: Element) -> None:
    """Refuse rules whose names are no names, and rules that do nothing."""
    rules = children(root, "Rule")
    names = [name for name in (text_of(rule, "ID", "") for rule in rules) if name]
    if any(len(name) > _LONGEST_NAME for name in names):
        raise S3Error("InvalidArgument", f"ID length should not exceed allowed limit of {_LONGEST_NAME}")
    if len(set(names)) != len(names):
        raise S3Error("InvalidArgument", "Rule ID must be unique. Found same ID for more than one rule")
    for rule in rules:
        if not any(child(rule, action) is not None for action in _ACTIONS):
            raise S3Error("InvalidRequest", "At least one action needs to be specified in a rule.")
        _check_rule(rule)


def _check_rule(rule: Element) -> None:
    """Refuse a rule that would remove more than it says, if a part of it were left out of account."""
    if child(rule, "Prefix") is not None and child(rule, "Filter") is not None:
        raise S3Error("InvalidRequest", "Filter and Prefix cannot both be used in the same lifecycle rule")
    for action, known in _DETAILS.items():
        for detail in rule.iterfind(f"{action}/*"):
            if detail.tag not in known:
                raise S3Error("NotImplemented", f"{action} with {detail.tag[:60]} cannot be followed here.")
    expiration = {detail.tag for detail in rule.iterfind("Expiration/*")}
    if len(expiration) > 1:
        raise malformed_xml()
    has_tags = rule.find("Filter//Tag") is not None
    if has_tags and (
        "ExpiredObjectDeleteMarker" in expiration or child(rule, "AbortIncompleteMultipartUpload") is not None
    ):
        raise S3Error("InvalidRequest", "Neither uploads nor delete markers have tags.")
