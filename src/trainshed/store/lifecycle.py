"""The lifecycle rules of a bucket, from the XML that S3 and OBS clients send."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import parse_qsl
from xml.etree import ElementTree

from trainshed.model.errors import InvalidInput
from trainshed.store.records import ObjectInfo
from trainshed.store.rules import TAGGING_ATTRIBUTE

__all__ = ["LifecycleRule", "has_tags", "is_due", "parse_lifecycle"]

_DAY = 86400.0
_MAX_RULES = 1000


@dataclass(frozen=True)
class LifecycleRule:
    """When objects below a prefix (and with all of these tags) go by themselves."""

    prefix: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    is_enabled: bool = True
    # Days after the last write, or a moment.
    days: int | None = None
    date: float | None = None
    # Days after an object was overwritten or removed.
    noncurrent_days: int | None = None
    # Days after an upload in parts was begun.
    abort_days: int | None = None
    # Whether markers of removed objects go that hide nothing any more.
    drop_markers: bool = False


def is_due(since: float, days: int, now: float) -> bool:
    """Whether so many days have passed; like the clouds, we count on to the next midnight (UTC)."""
    return now >= math.ceil((since + days * _DAY) / _DAY) * _DAY


def has_tags(info: ObjectInfo, rule: LifecycleRule) -> bool:
    """Whether an object has all the tags that a rule asks for."""
    if not rule.tags:
        return True
    tags = dict(parse_qsl(info.attributes.get(TAGGING_ATTRIBUTE, ""), keep_blank_values=True))
    return all(tags.get(name) == value for name, value in rule.tags.items())


def parse_lifecycle(document: str) -> list[LifecycleRule]:
    """Read a `LifecycleConfiguration`. What cannot be honoured (other storage classes) is refused."""
    if "<!" in document:
        # Neither entities nor a document type have a place here.
        raise _malformed()
    try:
        root = ElementTree.fromstring(document)
    except ElementTree.ParseError:
        raise _malformed() from None
    if _name(root) != "LifecycleConfiguration" or not 1 <= len(root) <= _MAX_RULES:
        raise _malformed()
    return [_rule(element) for element in root]


def _rule(element: ElementTree.Element) -> LifecycleRule:
    if _name(element) != "Rule":
        raise _malformed()
    parts = {_name(part): part for part in element}
    unknown = set(parts) & {"Transition", "NoncurrentVersionTransition"}
    if unknown:
        raise InvalidInput(
            f"{unknown.pop()}: there is one storage class only.",
            hint="Use Expiration, NoncurrentVersionExpiration or AbortIncompleteMultipartUpload.",
            code="not_implemented",
        )
    status = (parts["Status"].text or "").strip() if "Status" in parts else ""
    if status not in ("Enabled", "Disabled"):
        raise _malformed()
    prefix, tags = _filter(parts)
    expiration = {_name(part): part for part in parts.get("Expiration", ())}
    noncurrent = {_name(part): part for part in parts.get("NoncurrentVersionExpiration", ())}
    abort = {_name(part): part for part in parts.get("AbortIncompleteMultipartUpload", ())}
    if not expiration and not noncurrent and not abort:
        raise _malformed()
    return LifecycleRule(
        prefix=prefix,
        tags=tags,
        is_enabled=status == "Enabled",
        days=_days(expiration.get("Days")),
        date=_date(expiration.get("Date")),
        noncurrent_days=_days(noncurrent.get("NoncurrentDays")),
        abort_days=_days(abort.get("DaysAfterInitiation")),
        drop_markers=_text(expiration.get("ExpiredObjectDeleteMarker")).lower() == "true",
    )


def _filter(parts: dict[str, ElementTree.Element]) -> tuple[str, dict[str, str]]:
    prefix, tags = _text(parts.get("Prefix")), {}
    for element in parts["Filter"].iter() if "Filter" in parts else ():
        if _name(element) == "Prefix":
            prefix = _text(element)
        elif _name(element) == "Tag":
            tag = {_name(part): _text(part) for part in element}
            tags[tag.get("Key", "")] = tag.get("Value", "")
        elif _name(element) not in ("Filter", "And", "Key", "Value"):
            raise InvalidInput(f"The filter '{_name(element)[:40]}' is not known.", code="not_implemented")
    return prefix, tags


def _days(element: ElementTree.Element | None) -> int | None:
    if element is None:
        return None
    text = _text(element)
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= 100_000:
        raise InvalidInput("Days are a whole number of at least 1.", code="invalid_argument")
    return int(text)


def _date(element: ElementTree.Element | None) -> float | None:
    if element is None:
        return None
    try:
        moment = datetime.fromisoformat(_text(element))
    except ValueError:
        raise _malformed() from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()


def _text(element: ElementTree.Element | None) -> str:
    return (element.text or "").strip() if element is not None else ""


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _malformed() -> InvalidInput:
    return InvalidInput(
        "The lifecycle configuration cannot be read.",
        hint="Send a LifecycleConfiguration with one Rule or more, each with a Status and an Expiration.",
        code="malformed_xml",
    )
