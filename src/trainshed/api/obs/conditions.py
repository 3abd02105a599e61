"""Conditions that a request puts to an object: If-Match and its kin, for reading and for the source of a copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.signatures.claim import read_http_date, read_iso_date
from trainshed.store.object_store import Condition, ObjectInfo

__all__ = ["check_copy_source", "check_read", "read_delete_condition", "read_write_condition"]

_UNKNOWN_OF_DELETES = (
    "if-none-match",
    "if-unmodified-since",
    "x-amz-if-match-last-modified-time",
    "x-amz-if-match-size",
)
_Outcome = Literal["ok", "failed", "unchanged"]


def check_read(headers: Mapping[str, str], info: ObjectInfo) -> None:
    """Refuse to send an object that is not as the conditions want it (412), or is as the client has it (304)."""
    match, failed = _judge(
        headers.get("if-match", ""),
        headers.get("if-none-match", ""),
        headers.get("if-modified-since", ""),
        headers.get("if-unmodified-since", ""),
        info,
    )
    if match == "failed":
        raise _precondition_failed(failed)
    if match == "unchanged":
        raise S3Error("NotModified", "Not Modified")


def check_copy_source(headers: Mapping[str, str], prefix: str, info: ObjectInfo) -> None:
    """The same for the source of a copy, where all that does not fit is a failure."""
    base = f"{prefix}copy-source-if-"
    match, failed = _judge(
        headers.get(base + "match", ""),
        headers.get(base + "none-match", ""),
        headers.get(base + "modified-since", ""),
        headers.get(base + "unmodified-since", ""),
        info,
    )
    if match != "ok":
        raise _precondition_failed(f"{base}{failed.lower().removeprefix('if-')}")


def read_write_condition(headers: Mapping[str, str]) -> Condition | None:
    """What must hold of the object that a write replaces."""
    match, none_match = headers.get("if-match", "").strip(), headers.get("if-none-match", "").strip()
    if not match and not none_match:
        return None
    if match and none_match:
        raise S3Error("InvalidRequest", "If-Match and If-None-Match exclude each other.")
    if none_match and none_match != "*":
        raise S3Error("NotImplemented", "A write understands If-None-Match: * only.")
    return Condition(if_match=_bare(match), if_none_match=none_match)


def read_delete_condition(headers: Mapping[str, str]) -> Condition | None:
    """What must hold of the object that is to be removed."""
    unknown = [name for name in _UNKNOWN_OF_DELETES if headers.get(name)]
    if unknown:
        # Left out of account, it would remove what the client wants to keep.
        raise S3Error("NotImplemented", f"Removals understand If-Match only, not {unknown[0]}.")
    match = headers.get("if-match", "").strip()
    return Condition(if_match=_bare(match)) if match else None


def _judge(
    match: str, none_match: str, modified: str, unmodified: str, info: ObjectInfo
) -> tuple[_Outcome, str]:
    """By the order of the HTTP standard: an ETag says more than a time."""
    moment = int(info.modified_at)
    if match:
        if not _names(match, info.etag):
            return "failed", "If-Match"
    elif unmodified:
        limit = _moment(unmodified)
        if limit is not None and moment > limit:
            return "failed", "If-Unmodified-Since"
    if none_match:
        if _names(none_match, info.etag):
            return "unchanged", "If-None-Match"
    elif modified:
        limit = _moment(modified)
        if limit is not None and moment <= limit:
            return "unchanged", "If-Modified-Since"
    return "ok", ""


def _names(header: str, etag: str) -> bool:
    return any(_bare(word) in ("*", etag) for word in header.split(","))


def _bare(etag: str) -> str:
    return etag.strip().removeprefix("W/").strip('"')


def _moment(text: str) -> float | None:
    found = read_http_date(text)
    return found if found is not None else read_iso_date(text)


def _precondition_failed(condition: str) -> S3Error:
    return S3Error(
        "PreconditionFailed",
        "At least one of the pre-conditions you specified did not hold",
        Condition=condition,
    )
