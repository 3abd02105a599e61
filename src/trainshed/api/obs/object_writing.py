"""PUT, copy and DELETE of objects."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote_to_bytes

from trainshed.api.obs.body import BodyReader, receive, receive_document
from trainshed.api.obs.conditions import check_copy_source, read_delete_condition, read_write_condition
from trainshed.api.obs.encryption import encryption_header
from trainshed.api.obs.errors import S3Error, translate_error
from trainshed.api.obs.object_headers import read_about, read_permissions, read_storage_class, version_header
from trainshed.api.obs.visit import Visit
from trainshed.api.obs.xml_codec import children, format_time, malformed_xml, parse_xml, text_of
from trainshed.model.errors import TrainshedError
from trainshed.model.names import check_key
from trainshed.store.embedded.room import require_room
from trainshed.store.object_store import Condition, ObjectInfo, Removal, Upload

__all__ = [
    "check_size",
    "copy_object",
    "delete_object",
    "delete_objects",
    "put_object",
    "read_copied",
    "read_copy_source",
]

_MOST_DELETES = 1000
# More comes in parts.
_MOST_BYTES = 5 << 30


async def put_object(visit: Visit) -> None:
    """Store an object."""

    def begin(reader: BodyReader) -> Upload:
        bucket = visit.writable()
        check_size(reader)
        require_room(visit.store, bucket, visit.key, reader.size)
        about = read_about(visit)
        return visit.store.upload(
            visit.bucket,
            visit.key,
            content_type=about.content_type,
            metadata=about.metadata,
            attributes=about.attributes,
            condition=read_write_condition(visit.headers),
        )

    info, checksum = await receive(visit, begin, is_object=True)
    headers = {"etag": f'"{info.etag}"', **version_header(info), **encryption_header(visit)}
    for name, value in checksum.items():
        headers[f"x-amz-{name}"] = value
        headers["x-amz-checksum-type"] = "FULL_OBJECT"
    await visit.answer(200, headers)


def check_size(reader: BodyReader) -> None:
    """Refuse a body that is announced to be larger than one request may bring, before any of it comes."""
    if reader.size is not None and reader.size > _MOST_BYTES:
        raise S3Error(
            "EntityTooLarge",
            "Your proposed upload exceeds the maximum allowed size",
            ProposedSize=str(reader.size),
            MaxSizeAllowed=str(_MOST_BYTES),
        )


def _read_directive(visit: Visit, name: str, *known: str) -> str:
    directive = visit.option(name).upper() or "COPY"
    if directive not in known:
        raise S3Error("InvalidArgument", f"Unknown {name.replace('-', ' ')}.")
    return directive


def read_copied(visit: Visit, bucket: str, key: str, version: str) -> ObjectInfo:
    """What is known of the source of a copy."""
    try:
        return visit.store.info(bucket, key, version)
    except TrainshedError as error:
        if error.code == "is_delete_marker":
            raise S3Error(
                "InvalidRequest",
                "The source of a copy request may not specifically refer to a delete marker by version id.",
            ) from None
        raise


async def copy_object(visit: Visit) -> None:
    """Copy an object, with its metadata or with that of the request."""
    source, key, version = read_copy_source(visit)
    directive = _read_directive(visit, "metadata-directive", "COPY", "REPLACE", "REPLACE_NEW")
    replaces_tags = _read_directive(visit, "tagging-directive", "COPY", "REPLACE") == "REPLACE"

    def work() -> tuple[ObjectInfo, ObjectInfo]:
        visit.readable_object(source, key, version)
        visit.writable()
        check_key(visit.key)
        info = read_copied(visit, source, key, version)
        check_copy_source(visit.headers, visit.prefix, info)
        storage_class = read_storage_class(visit)
        condition = read_write_condition(visit.headers)
        if directive == "COPY":
            is_itself = (source, key, version) == (visit.bucket, visit.key, "")
            if is_itself and not (storage_class or visit.option("server-side-encryption")):
                raise S3Error(
                    "InvalidRequest",
                    "This copy request is illegal because it is trying to copy an object to itself without"
                    " changing the object's metadata, storage class, website redirect location or encryption"
                    " attributes.",
                )
            # Who may read the copy is said anew.
            kept = {name: value for name, value in info.attributes.items() if name != "acl"}
            return info, visit.store.copy(
                source,
                key,
                visit.bucket,
                visit.key,
                version_id=version,
                attributes=kept | storage_class | read_permissions(visit, is_replacing=replaces_tags),
                condition=condition,
            )
        about = read_about(visit)
        # The bytes stay the same, and so does their checksum.
        checksums = {
            name: value
            for name, value in info.attributes.items()
            if name.startswith("checksum-") or (name == "tagging" and not replaces_tags)
        }
        return info, visit.store.copy(
            source,
            key,
            visit.bucket,
            visit.key,
            version_id=version,
            content_type=about.content_type,
            metadata=about.metadata,
            attributes=about.attributes | checksums,
            condition=condition,
        )

    original, info = await visit.do(work)
    content = [("LastModified", format_time(info.modified_at)), ("ETag", f'"{info.etag}"')]
    for name, value in info.attributes.items():
        if name.startswith("checksum-"):
            content.append((f"Checksum{name.removeprefix('checksum-').upper()}", value))
    headers = version_header(info) | encryption_header(visit)
    if original.version_id:
        headers["x-amz-copy-source-version-id"] = original.version_id
    await visit.answer_xml("CopyObjectResult", content, headers=headers)


def read_copy_source(visit: Visit) -> tuple[str, str, str]:
    """Bucket, key and version in the `copy-source` header."""
    text, _, version = visit.option("copy-source").partition("?versionId=")
    try:
        place = unquote_to_bytes(text.encode("latin-1")).decode().removeprefix("/")
    except UnicodeDecodeError:
        place = ""
    bucket, slash, key = place.partition("/")
    if not slash or not bucket or not key:
        raise S3Error(
            "InvalidArgument", "Copy Source must mention the source bucket and key: sourcebucket/sourcekey"
        )
    return bucket, key, version


async def delete_object(visit: Visit) -> None:
    """Remove an object; one that is not there is gone already."""

    def work() -> Removal:
        visit.writable("DeleteObject")
        check_key(visit.key)
        version, condition = visit.query.get("versionId", ""), read_delete_condition(visit.headers)
        return visit.store.remove(visit.bucket, visit.key, version, condition=condition)

    removal = await visit.do(work)
    headers = {"x-amz-version-id": removal.version_id} if removal.version_id else {}
    if removal.is_delete_marker:
        headers["x-amz-delete-marker"] = "true"
    await visit.answer(204, headers)


async def delete_objects(visit: Visit) -> None:
    """Remove up to 1,000 objects."""
    await visit.do(lambda: visit.writable("DeleteObject"))
    root = parse_xml(await receive_document(visit), "Delete")
    keys = [
        (text_of(entry, "Key"), text_of(entry, "VersionId", ""), text_of(entry, "ETag", ""))
        for entry in children(root, "Object")
    ]
    if not 1 <= len(keys) <= _MOST_DELETES:
        raise malformed_xml()
    quiet = text_of(root, "Quiet", "").strip().lower() == "true"

    def delete(key: str, version: str, etag: str) -> tuple[str, list[tuple[str, Any]]]:
        named: list[tuple[str, Any]] = [("Key", key), ("VersionId", version or None)]
        try:
            check_key(key)
            condition = Condition(if_match=etag) if etag else None
            removal = visit.store.remove(visit.bucket, key, version, condition=condition)
        except TrainshedError as error:
            known = translate_error(error)
            return "Error", [*named, ("Code", known.code), ("Message", known.message)]
        if removal.is_delete_marker:
            named += [("DeleteMarker", True), ("DeleteMarkerVersionId", removal.version_id)]
        return "Deleted", named

    def work() -> list[tuple[str, Any]]:
        results = [delete(*entry) for entry in keys]
        return [result for result in results if result[0] == "Error" or not quiet]

    await visit.answer_xml("DeleteResult", await visit.do(work))
