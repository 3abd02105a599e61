"""What is known of an object, as headers of the endpoint and back again.

Metadata that HTTP can carry travels as `x-amz-meta-<name>`, so that other tools see it and we see theirs. All
else goes into one header of ours: names that are not in lower case, values that are not ASCII, attributes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, unquote

from trainshed.store.records import ObjectInfo

__all__ = ["bare_etag", "moment_of", "read_facts", "write_facts"]

_META = "x-amz-meta-"
_OURS = _META + "trainshed"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,100}")
# Printable ASCII without blanks at the ends, which HTTP drops, or doubled ones, which signatures fold.
_VALUE = re.compile(r"[!-~]+(?: [!-~]+)*")


def write_facts(
    content_type: str,
    metadata: Mapping[str, str],
    attributes: Mapping[str, str],
    *,
    is_appendable: bool = False,
) -> dict[str, str]:
    """The headers of a request that makes an object."""
    headers: dict[str, str] = {}
    rest: dict[str, Any] = {}
    odd: dict[str, str] = {}
    for name, value in metadata.items():
        if _NAME.fullmatch(name) and _VALUE.fullmatch(value) and name != "trainshed":
            headers[_META + name] = value
        else:
            odd[name] = value
    if odd:
        rest["metadata"] = odd
    if attributes:
        rest["attributes"] = dict(attributes)
    if is_appendable:
        rest["appendable"] = True
    if _VALUE.fullmatch(content_type):
        headers["content-type"] = content_type
    else:
        headers["content-type"] = "application/octet-stream"
        rest["type"] = content_type
    if rest:
        # Compact and in ASCII; quoted, because some endpoints take a header apart at commas.
        text = json.dumps(rest, separators=(",", ":"), ensure_ascii=False)
        headers[_OURS] = quote(text, safe="{}:/=&+*-_.~ ").replace("  ", "%20%20")
    return headers


def read_facts(bucket: str, key: str, headers: Mapping[str, str], size: int | None = None) -> ObjectInfo:
    """An object, from the headers of an answer to GET or HEAD."""
    metadata = {
        name[len(_META) :]: value
        for name, value in headers.items()
        if name.startswith(_META) and name != _OURS
    }
    rest: dict[str, Any] = {}
    if _OURS in headers:
        try:
            rest = json.loads(unquote(headers[_OURS]))
        except ValueError:
            metadata["trainshed"] = headers[_OURS]  # Not written by us.
    if size is None:
        _, _, total = headers.get("content-range", "").rpartition("/")
        size = int(total if total.isdigit() else headers.get("content-length", "0"))
    return ObjectInfo(
        bucket,
        key,
        size,
        bare_etag(headers.get("etag", "")),
        moment_of(headers.get("last-modified", "")),
        rest.get("type") or headers.get("content-type", "application/octet-stream"),
        {**metadata, **rest.get("metadata", {})},
        dict(rest.get("attributes", {})),
        is_appendable=bool(rest.get("appendable")),
    )


def bare_etag(etag: str) -> str:
    """An ETag without its quotes."""
    return etag.strip().strip('"')


def moment_of(text: str) -> float:
    """The moment that a header (`Sun, 15 Nov ...`) or a list (`2026-11-15T...`) tells."""
    try:
        if text[:4].isdigit():
            return datetime.fromisoformat(text).timestamp()
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError):
        return time.time()
