"""Versions of objects: switched on for a bucket, and listed."""

from __future__ import annotations

from typing import Any

from trainshed.api.obs.body import receive_document
from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.listing import read_encoding, read_number
from trainshed.api.obs.visit import Visit, owner_of
from trainshed.api.obs.xml_codec import format_time, malformed_xml, parse_xml, text_of
from trainshed.store.object_store import Bucket, VersionListing

__all__ = ["get_versioning", "list_versions", "put_versioning"]


async def get_versioning(visit: Visit) -> None:
    """Whether a bucket keeps versions."""
    bucket = await visit.do(visit.readable)
    await visit.answer_xml("VersioningConfiguration", [("Status", bucket.versioning or None)])


async def put_versioning(visit: Visit) -> None:
    """Keep versions from now on, or keep no new ones."""
    await visit.do(visit.owned)
    root = parse_xml(await receive_document(visit), "VersioningConfiguration")
    status = text_of(root, "Status")
    if status not in ("Enabled", "Suspended"):
        raise malformed_xml()
    if text_of(root, "MfaDelete", "").strip() == "Enabled":
        raise S3Error("NotImplemented", "There is no second factor for removals here.")
    await visit.do(lambda: visit.store.set_versioning(visit.bucket, status))
    await visit.answer(200)


async def list_versions(visit: Visit) -> None:
    """All versions of a bucket's objects, the newest of each first."""
    query = visit.query
    limit = read_number(visit, "max-keys", 1000)
    encode = read_encoding(visit)
    if query.get("version-id-marker") and not query.get("key-marker"):
        raise S3Error("InvalidArgument", "A version-id marker cannot be specified without a key marker.")

    def work() -> tuple[Bucket, VersionListing]:
        bucket = visit.readable()
        if limit == 0:
            return bucket, VersionListing(())
        return bucket, visit.store.list_versions(
            visit.bucket,
            query.get("prefix", ""),
            delimiter=query.get("delimiter", ""),
            after_key=query.get("key-marker", ""),
            after_version=query.get("version-id-marker", ""),
            limit=limit,
        )

    bucket, page = await visit.do(work)
    owner = owner_of(bucket.workspace_id)
    content: list[tuple[str, Any]] = [
        ("Name", visit.bucket),
        ("Prefix", encode(query.get("prefix", ""))),
        ("KeyMarker", encode(query.get("key-marker", ""))),
        ("VersionIdMarker", query.get("version-id-marker", "")),
        ("NextKeyMarker", encode(page.next_after_key) if page.next_after_key else None),
        ("NextVersionIdMarker", page.next_after_version if page.next_after_key else None),
        ("MaxKeys", limit),
        ("Delimiter", encode(query["delimiter"]) if query.get("delimiter") else None),
        ("EncodingType", query.get("encoding-type")),
        ("IsTruncated", bool(page.next_after_key)),
    ]
    for version in page.versions:
        info = version.info
        entry: list[tuple[str, Any]] = [
            ("Key", encode(info.key)),
            ("VersionId", info.version_id or "null"),
            ("IsLatest", version.is_latest),
            ("LastModified", format_time(info.modified_at)),
            ("Owner", owner),
        ]
        if version.is_delete_marker:
            content.append(("DeleteMarker", entry))
        else:
            entry += [("ETag", f'"{info.etag}"'), ("Size", info.size)]
            entry.append(("StorageClass", info.attributes.get("storage-class", "STANDARD")))
            content.append(("Version", entry))
    content += [("CommonPrefixes", [("Prefix", encode(folder))]) for folder in page.folders]
    await visit.answer_xml("ListVersionsResult", content)
