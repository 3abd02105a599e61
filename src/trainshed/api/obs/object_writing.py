"""PUT, copy and DELETE of objects."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote_to_bytes

from trainshed.api.obs.body import BodyReader, receive, receive_document
from trainshed.api.obs.conditions import check_copy_source, read_write_condition
from trainshed.api.obs.errors import S3Error, translate_error
from trainshed.api.obs.object_headers import read_about, read_permissions, version_header
from trainshed.api.obs.visit import Visit
from trainshed.api.obs.xml_codec import children, format_time, malformed_xml, parse_xml, text_of
from trainshed.model.errors import TrainshedError
from trainshed.model.names import check_key
from trainshed.store.object_store import ObjectInfo, Removal, Upload

__all__ = ["copy_object", "delete_object", "delete_objects", "put_object", "read_copy_source"]

_MOST_DELETES = 1000


async def put_object(visit: Visit) -> None:
    """Store an object."""

    def begin(reader: BodyReader) -> Upload:
        visit.writable()
        about = read_about(visit)
        return visit.store.upload(
            visit.bucket,
            visit.key,
            content_type=about.content_type,
            metadata=about.metadata,
            attributes=about.attributes,
            condition=read_write_condition(visit.headers),
        )

    info, checksum = await receive(visit, begin)
    headers = {"etag": f'"{info.etag}"', **version_header(info)}
    for name, value in checksum.items():
        headers[f"x-amz-{name}"] = value
        headers["x-amz-checksum-type"] = "FULL_OBJECT"
    await visit.answer(200, headers)


async def copy_object(visit: Visit) -> None:
    """Copy an object, with its metadata or with that of the request."""
    source, key, version = read_copy_source(visit)
    directive = visit.option("metadata-directive").upper() or "COPY"
    if directive not in ("COPY", "REPLACE", "REPLACE_NEW"):
        raise S3Error("InvalidArgument", "Unknown metadata directive.")
    replaces_tags = visit.option("tagging-directive").upper() == "REPLACE"

    def work() -> ObjectInfo:
        visit.readable_object(source, key, version)
        visit.writable()
        check_key(visit.key)
        info = visit.store.info(source, key, version)
        check_copy_source(visit.headers, visit.prefix, info)
        if directive == "COPY":
            if (source, key, version) == (visit.bucket, visit.key, "") and not visit.option("storage-class"):
                raise S3Error(
                    "InvalidRequest",
                    "This copy request is illegal because it is trying to copy an object to itself without"
                    " changing the object's metadata, storage class, website redirect location or encryption"
                    " attributes.",
                )
            # Who may read the copy is said anew.
            kept = {name: value for name, value in info.attributes.items() if name != "acl"}
            return visit.store.copy(
                source,
                key,
                visit.bucket,
                visit.key,
                version_id=version,
                attributes=kept | read_permissions(visit, is_replacing=replaces_tags),
            )
        about = read_about(visit)
        # The bytes stay the same, and so does their checksum.
        checksums = {
            name: value
            for name, value in info.attributes.items()
            if name.startswith("checksum-") or (name == "tagging" and not replaces_tags)
        }
        return visit.store.copy(
            source,
            key,
            visit.bucket,
            visit.key,
            version_id=version,
            content_type=about.content_type,
            metadata=about.metadata,
            attributes=about.attributes | checksums,
        )

    info = await visit.do(work)
    content = [("LastModified", format_time(info.modified_at)), ("ETag", f'"{info.etag}"')]
    await visit.answer_xml("CopyObjectResult", content, headers=version_header(info))


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
        return visit.store.remove(visit.bucket, visit.key, visit.query.get("versionId", ""))

    removal = await visit.do(work)
    headers = {"x-amz-version-id": removal.version_id} if removal.version_id else {}
    if removal.is_delete_marker:
        headers["x-amz-delete-marker"] = "true"
    await visit.answer(204, headers)


async def delete_objects(visit: Visit) -> None:
    """Remove up to 1,000 objects."""
    await visit.do(lambda: visit.writable("DeleteObject"))
    root = parse_xml(await receive_document(visit), "Delete")
    keys = [(text_of(entry, "Key"), text_of(entry, "VersionId", "")) for entry in children(root, "Object")]
    if not 1 <= len(keys) <= _MOST_DELETES:
        raise malformed_xml()
    quiet = text_of(root, "Quiet", "").strip().lower() == "true"

    def delete(key: str, version: str) -> tuple[str, list[tuple[str, Any]]]:
        named: list[tuple[str, Any]] = [("Key", key), ("VersionId", version or None)]
        try:
            check_key(key)
            removal = visit.store.remove(visit.bucket, key, version)
        except TrainshedError as error:
            known = translate_error(error)
            return "Error", [*named, ("Code", known.code), ("Message", known.message)]
        if removal.is_delete_marker:
            named += [("DeleteMarker", True), ("DeleteMarkerVersionId", removal.version_id)]
        return "Deleted", named

    def work() -> list[tuple[str, Any]]:
        results = [delete(key, version) for key, version in keys]
        return [result for result in results if result[0] == "Error" or not quiet]

    await visit.answer_xml("DeleteResult", await visit.do(work))
