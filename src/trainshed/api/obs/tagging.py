"""Tags of objects and buckets."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode

from trainshed.api.obs.body import receive_document
from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.visit import Visit
from trainshed.api.obs.xml_codec import child, children, malformed_xml, parse_xml, text_of

__all__ = [
    "delete_bucket_tags",
    "delete_tags",
    "get_bucket_tags",
    "get_tags",
    "put_bucket_tags",
    "put_tags",
    "read_tag_document",
    "read_tag_header",
]

_OBJECT_TAGS, _BUCKET_TAGS = 10, 50
_SIGNS = "_.:/=+-@"


async def get_tags(visit: Visit) -> None:
    """The tags of an object."""
    version = visit.query.get("versionId", "")

    def work() -> str:
        visit.readable_object(visit.bucket, visit.key, version)
        return visit.store.info(visit.bucket, visit.key, version).attributes.get("tagging", "")

    await visit.answer_xml("Tagging", _tag_set(await visit.do(work)))


async def put_tags(visit: Visit) -> None:
    """Give an object other tags."""
    await visit.do(visit.writable)
    tags = _read_tags(await receive_document(visit), _OBJECT_TAGS)
    await _set_tags(visit, tags)
    await visit.answer(200)


async def delete_tags(visit: Visit) -> None:
    """Take all tags from an object."""
    await visit.do(visit.writable)
    await _set_tags(visit, None)
    await visit.answer(204)


async def _set_tags(visit: Visit, tags: str | None) -> None:
    version = visit.query.get("versionId", "")
    await visit.do(
        lambda: visit.store.set_attributes(visit.bucket, visit.key, {"tagging": tags}, version_id=version)
    )


async def get_bucket_tags(visit: Visit) -> None:
    """The tags of a bucket."""
    await visit.do(visit.owned)
    tags = await visit.do(lambda: visit.store.bucket_document(visit.bucket, "tagging"))
    if not tags:
        raise S3Error("NoSuchTagSet", "The TagSet does not exist", BucketName=visit.bucket)
    await visit.answer_xml("Tagging", _tag_set(tags))


async def put_bucket_tags(visit: Visit) -> None:
    """Give a bucket other tags."""
    await visit.do(visit.owned)
    tags = _read_tags(await receive_document(visit), _BUCKET_TAGS)
    await visit.do(lambda: visit.store.set_bucket_document(visit.bucket, "tagging", tags))
    await visit.answer(204)


async def delete_bucket_tags(visit: Visit) -> None:
    """Take all tags from a bucket."""
    await visit.do(visit.owned)
    await visit.do(lambda: visit.store.set_bucket_document(visit.bucket, "tagging", ""))
    await visit.answer(204)


def read_tag_header(text: str) -> str:
    """The tags in an `x-amz-tagging` header, checked."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError:
        raise S3Error(
            "InvalidArgument",
            "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters.",
        ) from None
    return _checked(pairs, _OBJECT_TAGS)


def read_tag_document(body: bytes) -> str:
    """The tags of an object in a `Tagging` document, checked."""
    return _read_tags(body, _OBJECT_TAGS)


def _read_tags(body: bytes, most: int) -> str:
    tag_set = child(parse_xml(body, "Tagging"), "TagSet")
    if tag_set is None:
        raise malformed_xml()
    return _checked([(text_of(tag, "Key"), text_of(tag, "Value")) for tag in children(tag_set, "Tag")], most)


def _checked(pairs: list[tuple[str, str]], most: int) -> str:
    if len(pairs) > most:
        raise S3Error("InvalidTag", f"There may be {most} tags at most.")
    if len({name for name, _ in pairs}) != len(pairs):
        raise S3Error("InvalidTag", "Cannot provide multiple Tags with the same key")
    for name, value in pairs:
        if not 1 <= len(name) <= 128 or len(value) > 256:
            raise S3Error("InvalidTag", "A tag's key has 1 to 128 characters and its value 256 at most.")
        if not all(letter.isalnum() or letter.isspace() or letter in _SIGNS for letter in name + value):
            raise S3Error("InvalidTag", f"Tags consist of letters, digits, blanks and {_SIGNS}")
    return urlencode(pairs)


def _tag_set(tags: str) -> list[tuple[str, Any]]:
    pairs = parse_qsl(tags, keep_blank_values=True)
    return [("TagSet", [("Tag", [("Key", name), ("Value", value)]) for name, value in pairs])]
