"""The headers of an object: what a client sent with it, kept and given back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from urllib.parse import quote

from trainshed.api.obs.acl import read_acl_header
from trainshed.api.obs.encryption import check_encryption, encryption_header
from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.tagging import read_tag_header
from trainshed.api.obs.visit import Visit
from trainshed.store.object_store import ObjectInfo

__all__ = [
    "About",
    "object_headers",
    "override_headers",
    "read_about",
    "read_permissions",
    "read_storage_class",
    "version_header",
]

DEFAULT_TYPE = "binary/octet-stream"
_KEPT = ("cache-control", "content-disposition", "content-encoding", "content-language", "expires")
_OPTIONS = ("storage-class", "website-redirect-location")
_MAX_METADATA = 2048
# Headers of almost every request, which say nothing of the object.
_SAY_NOTHING = frozenset(
    [
        "x-amz-content-sha256",
        "x-amz-date",
        "x-obs-content-sha256",
        "x-obs-date",
        "x-amz-decoded-content-length",
    ]
)
_HEADER_NAME = re.compile(r"[a-z0-9!#$&'*+.^_`|~-]{1,200}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\x80-\xff]*")
_OVERRIDES = (
    "content-type",
    "content-language",
    "expires",
    "cache-control",
    "content-disposition",
    "content-encoding",
)
_STORAGE_CLASSES = frozenset(
    [
        "STANDARD",
        "STANDARD_IA",
        "ONEZONE_IA",
        "REDUCED_REDUNDANCY",
        "INTELLIGENT_TIERING",
        "GLACIER",
        "GLACIER_IR",
        "DEEP_ARCHIVE",
        "WARM",
        "COLD",
    ]
)


@dataclass(frozen=True)
class About:
    """What is kept with an object beside its bytes."""

    content_type: str = DEFAULT_TYPE
    metadata: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)


def _refuse_unkept(visit: Visit) -> None:
    """Refuse what a client would rely on, and what is not done here: it must not be taken silently."""
    check_encryption(visit)
    locked = f"{visit.prefix}object-lock-"
    if any(name.startswith(locked) for name in visit.headers):
        raise S3Error("InvalidRequest", "Bucket is missing Object Lock Configuration")
    if visit.option("write-offset-bytes"):
        raise S3Error("NotImplemented", "Objects grow by OBS's append only.")


def read_permissions(visit: Visit, *, is_replacing: bool = True) -> dict[str, str]:
    """The ACL and the tags that the headers of a request give to an object."""
    _refuse_unkept(visit)
    attributes = {}
    acl = read_acl_header(visit)
    if acl and acl != "private":
        attributes["acl"] = acl
    if visit.option("tagging") and is_replacing:
        attributes["tagging"] = read_tag_header(visit.option("tagging"))
    return attributes


def read_storage_class(visit: Visit) -> dict[str, str]:
    """The storage class that a request names, as an attribute; a class that is unknown is refused."""
    name = visit.option("storage-class")
    if name and name not in _STORAGE_CLASSES:
        raise S3Error("InvalidStorageClass", "The storage class you specified is not valid")
    return {"storage-class": name} if name else {}


def read_about(visit: Visit) -> About:
    """What the headers of a request say of the object that they bring."""
    headers = visit.headers
    attributes = {name: _from_wire(headers[name])[:1024] for name in _KEPT if headers.get(name)}
    if "content-encoding" in attributes:
        # How the body was framed on its way is no property of the object.
        encodings = [word.strip() for word in attributes.pop("content-encoding").split(",")]
        kept = ",".join(word for word in encodings if word and word != "aws-chunked")
        if kept:
            attributes["content-encoding"] = kept
    metadata: dict[str, str] = {}
    own = visit.prefix
    if any(name.startswith(own) and name not in _SAY_NOTHING for name in headers):
        metadata = _read_metadata(visit)
        for name in _OPTIONS:
            if visit.option(name):
                attributes[name] = _from_wire(visit.option(name))[:1024]
        read_storage_class(visit)
        attributes.update(read_permissions(visit))
    return About(_from_wire(headers.get("content-type", ""))[:255] or DEFAULT_TYPE, metadata, attributes)


def _read_metadata(visit: Visit) -> dict[str, str]:
    start = f"{visit.prefix}meta-"
    metadata = {
        name.removeprefix(start): _from_wire(value)
        for name, value in visit.headers.items()
        if name.startswith(start)
    }
    if sum(len(name) + len(value.encode()) for name, value in metadata.items()) > _MAX_METADATA:
        raise S3Error("MetadataTooLarge", "Your metadata headers exceed the maximum allowed metadata size.")
    return metadata


def object_headers(visit: Visit, info: ObjectInfo, *, is_whole: bool = True) -> dict[str, str]:
    """The headers of an object in an answer."""
    headers = {
        "etag": f'"{info.etag}"',
        "last-modified": formatdate(info.modified_at, usegmt=True),
        "content-type": _to_wire(info.content_type) or DEFAULT_TYPE,
        "accept-ranges": "bytes",
        # What users store is data: a browser may show it, but no script in it may act on this origin.
        "x-content-type-options": "nosniff",
        "content-security-policy": "sandbox",
    }
    for name, value in info.metadata.items():
        if _HEADER_NAME.fullmatch(name.lower()):
            headers[f"{visit.prefix}meta-{name}"] = _to_wire(value)
    for name, value in info.attributes.items():
        if name in _KEPT:
            headers[name] = _to_wire(value)
        elif name in _OPTIONS and value != "STANDARD":
            headers[f"x-amz-{name}"] = _to_wire(value)
        elif name.startswith("checksum-") and is_whole and visit.option("checksum-mode").upper() == "ENABLED":
            headers[f"x-amz-{name}"] = value
            headers["x-amz-checksum-type"] = "COMPOSITE" if "-" in value else "FULL_OBJECT"
    headers.update(version_header(info))
    headers.update(encryption_header(visit))
    if info.attributes.get("tagging"):
        headers["x-amz-tagging-count"] = str(info.attributes["tagging"].count("&") + 1)
    # The OBS SDK looks for these whatever dialect it speaks.
    if visit.is_obs or info.is_appendable:
        headers["x-obs-object-type"] = "Appendable" if info.is_appendable else "Normal"
    if info.is_appendable:
        headers["x-obs-next-append-position"] = str(info.size)
    return headers


def version_header(info: ObjectInfo) -> dict[str, str]:
    """The header that names the version, where versions are kept."""
    return {"x-amz-version-id": info.version_id} if info.version_id else {}


def override_headers(visit: Visit, headers: Mapping[str, str]) -> dict[str, str]:
    """The same, but for what a presigned URL asks to be told otherwise (`response-content-type=…`)."""
    chosen = {
        name: visit.query[f"response-{name}"] for name in _OVERRIDES if f"response-{name}" in visit.query
    }
    if chosen and not visit.is_signed:
        raise S3Error(
            "InvalidRequest", "Request specific response headers cannot be used for anonymous GET requests."
        )
    return {**headers, **{name: _to_wire(value) for name, value in chosen.items()}}


def _from_wire(value: str) -> str:
    """Header bytes are UTF-8 where they can be."""
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return value


def _to_wire(value: str) -> str:
    """The reverse; what cannot stand in a header is sent with percent signs."""
    text = value.encode("utf-8", "replace").decode("latin-1")
    return text if _HEADER_VALUE.fullmatch(text) else quote(value)
