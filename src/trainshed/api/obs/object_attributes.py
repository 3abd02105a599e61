"""GetObjectAttributes: what is known of an object as a document, only what was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from email.utils import formatdate
from typing import Any

from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.object_headers import version_header
from trainshed.api.obs.visit import Visit
from trainshed.model.names import check_key
from trainshed.store.object_store import ObjectInfo

__all__ = ["get_attributes"]

_KNOWN = ("ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize")


async def get_attributes(visit: Visit) -> None:
    """Send the attributes that the request names."""
    wanted = {name.strip() for name in visit.option("object-attributes").split(",") if name.strip()}
    if not wanted or wanted - set(_KNOWN):
        raise S3Error(
            "InvalidArgument",
            f"The x-amz-object-attributes header must name some of {', '.join(_KNOWN)}.",
            ArgumentName="x-amz-object-attributes",
        )
    version = visit.query.get("versionId", "")

    def describe() -> tuple[ObjectInfo, Sequence[int]]:
        visit.readable_object(visit.bucket, visit.key, version)
        check_key(visit.key)
        info = visit.store.info(visit.bucket, visit.key, version)
        # Only what came in parts has them; its ETag says so.
        is_asked = "ObjectParts" in wanted and "-" in info.etag
        return info, visit.store.piece_sizes(visit.bucket, visit.key, version) if is_asked else ()

    info, pieces = await visit.do(describe)
    content: list[tuple[str, Any]] = [
        ("ETag", info.etag),
        ("Checksum", _checksum(info)),
        ("ObjectParts", [("PartsCount", len(pieces))] if pieces else None),
        ("StorageClass", info.attributes.get("storage-class", "STANDARD")),
        ("ObjectSize", info.size),
    ]
    headers = {"last-modified": formatdate(info.modified_at, usegmt=True), **version_header(info)}
    chosen = [(name, value) for name, value in content if name in wanted]
    await visit.answer_xml("GetObjectAttributesResponse", chosen, headers=headers)


def _checksum(info: ObjectInfo) -> list[tuple[str, str]] | None:
    for name, value in info.attributes.items():
        if name.startswith("checksum-"):
            kind = "COMPOSITE" if "-" in value else "FULL_OBJECT"
            return [(f"Checksum{name.removeprefix('checksum-').upper()}", value), ("ChecksumType", kind)]
    return None
