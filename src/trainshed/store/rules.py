"""The rules that every object store follows, and the words in which it refuses what breaks them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import BinaryIO

from trainshed.model.errors import Conflict, InvalidInput, NotFound
from trainshed.store.records import Condition

__all__ = [
    "LIFECYCLE_DOCUMENT",
    "MAX_PARTS",
    "TAGGING_ATTRIBUTE",
    "UPLOAD_ATTRIBUTE",
    "check_condition",
    "check_digest",
    "check_document",
    "check_part_number",
    "check_part_order",
    "check_part_sizes",
    "check_position",
    "check_rename_target",
    "checked_metadata",
    "no_such_key",
    "no_such_upload",
    "no_such_version",
    "pieces_of",
    "taken",
    "wrong_part",
]

MAX_PARTS = 10_000
# Names under which protocols keep the rules of a bucket (XML) and the tags of an object (`a=1&b=2`).
LIFECYCLE_DOCUMENT = "lifecycle"
TAGGING_ATTRIBUTE = "tagging"
# Kept with the object, so that completing an upload twice is told from one that never was.
UPLOAD_ATTRIBUTE = "upload-id"
_CHUNK = 1 << 20
_MAX_METADATA = 8192
_MAX_DOCUMENT = 1 << 20


def pieces_of(data: bytes | BinaryIO | Iterable[bytes]) -> Iterator[bytes | memoryview]:
    """The bytes piece by piece, in whatever form they were given."""
    if isinstance(data, bytes | bytearray | memoryview):
        yield data
    elif hasattr(data, "read"):
        while piece := data.read(_CHUNK):
            yield piece
    else:
        yield from data


def checked_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """A copy of what a user wants to keep with an object, if it is not too much."""
    kept = dict(metadata or {})
    if sum(len(name) + len(value) for name, value in kept.items()) > _MAX_METADATA:
        raise InvalidInput(
            f"The metadata is longer than {_MAX_METADATA} characters.",
            hint="Put it into an object of its own.",
        )
    return kept


def check_document(document: str) -> None:
    """Refuse a text that is too long to be kept with a bucket."""
    if len(document) > _MAX_DOCUMENT:
        raise InvalidInput("The document is longer than 1 MB.", code="too_large_document")


def check_digest(kind: str, actual: str, expected: str) -> None:
    """Refuse what arrived if it is not what was announced."""
    if expected and actual != expected.lower():
        raise InvalidInput(
            f"The {kind} of what arrived is {actual}, but {expected[:80]} was announced; nothing was stored.",
            hint="The data was changed on its way: send it again.",
            code="checksum_mismatch",
        )


def check_condition(key: str, condition: Condition, etag: str | None) -> None:
    """Refuse a write whose condition the present object (or its absence) does not meet."""
    wanted, unwanted = condition.if_match.strip('"'), condition.if_none_match.strip('"')
    if wanted and etag is None:
        raise NotFound(
            f"There is no object '{key}' to replace.", hint="Write it without If-Match.", code="no_such_key"
        )
    if (wanted and wanted not in ("*", etag)) or (unwanted and etag is not None and unwanted in ("*", etag)):
        raise Conflict(
            f"The object '{key}' is not as the condition demands; nothing was changed.",
            hint="Look at the object as it is now, then decide again.",
            code="precondition_failed",
        )


def check_position(key: str, position: int, size: int | None, *, is_appendable: bool) -> None:
    """Refuse bytes that do not belong behind those of the object (None: there is none)."""
    if size is not None and not is_appendable:
        raise Conflict(
            f"'{key}' was not made by appending and cannot grow.",
            hint="Remove it first, or choose another key.",
            code="object_not_appendable",
        )
    size = size or 0
    if position != size:
        raise Conflict(
            f"'{key}' has {size} bytes; the position {position} is not its end.",
            hint=f"Append at position {size}.",
            code="position_not_equal_to_length",
            where=str(size),
        )


def check_rename_target(prefix: str, to_prefix: str) -> None:
    """Refuse to move a folder into itself."""
    if to_prefix.startswith(prefix) or prefix.startswith(to_prefix):
        raise InvalidInput(
            f"'{to_prefix}' and '{prefix}' lie in one another.",
            hint="Choose a name beside it.",
            code="invalid_target",
        )


def check_part_number(number: int) -> None:
    """Refuse a part that no upload can have."""
    if not 1 <= number <= MAX_PARTS:
        raise InvalidInput(
            f"Part numbers are 1 to {MAX_PARTS}.", hint="Send larger parts.", code="invalid_part_number"
        )


def check_part_order(parts: Sequence[tuple[int, str]]) -> None:
    """Refuse a list of parts that names none, or one twice, or not in order."""
    if not parts or any(one[0] >= two[0] for one, two in pairwise(parts)):
        raise InvalidInput(
            "The parts must be named in rising order, each once.",
            hint="Sort them by number." if parts else "Name at least one.",
            code="invalid_part_order",
        )


def check_part_sizes(parts: Sequence[tuple[int, int]], least: int) -> None:
    """Refuse parts (number, size) before the last one that are too small."""
    for number, size in parts[:-1]:
        if size < least:
            raise InvalidInput(
                f"Part {number} has {size} bytes; all but the last must have {least}.",
                hint="Send larger parts.",
                code="entity_too_small",
            )


def wrong_part(number: int, *, was_received: bool) -> InvalidInput:
    """The error for a part that is not there as the caller knows it."""
    return InvalidInput(
        f"Part {number} {'has another ETag' if was_received else 'was not received'}.",
        hint="Send it again, or name the parts as they were acknowledged.",
        code="invalid_part",
    )


def no_such_key(bucket: str, key: str) -> NotFound:
    """The error for a key that nothing has."""
    return NotFound(
        f"There is no object '{key}' in the bucket '{bucket}'.",
        hint=f"See what is there: trainshed obs ls obs://{bucket}/",
        code="no_such_key",
    )


def no_such_version(key: str, version_id: str) -> NotFound:
    """The error for a version that is not there."""
    return NotFound(
        f"There is no version '{version_id[:60]}' of '{key}'.",
        hint="List the versions to see which there are.",
        code="no_such_version",
    )


def no_such_upload(upload_id: str) -> NotFound:
    """The error for an upload that is over, or never was."""
    return NotFound(
        f"There is no unfinished upload '{upload_id[:60]}' of this key.",
        hint="It was completed, aborted or abandoned for too long: begin a new one.",
        code="no_such_upload",
    )


def taken(key: str) -> Conflict:
    """The error for a new name that something has already."""
    return Conflict(
        f"Something lies at '{key}' already.",
        hint="Remove it first, or choose another name.",
        code="object_exists",
    )
