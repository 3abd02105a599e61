"""What only OBS has: objects that grow, renames, and metadata that is changed in place."""

from __future__ import annotations

from trainshed.api.obs.body import BodyReader, receive, receive_document
from trainshed.api.obs.encryption import encryption_header
from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.object_headers import read_about
from trainshed.api.obs.object_writing import check_size
from trainshed.api.obs.visit import Visit
from trainshed.model.names import check_key
from trainshed.store.object_store import ObjectInfo, Upload

__all__ = ["append_object", "rename", "set_metadata"]


async def append_object(visit: Visit) -> None:
    """Put bytes behind those of an object, which must end at `position`."""
    text = visit.query.get("position", "")
    if not (text.isascii() and text.isdigit() and len(text) < 18):
        raise S3Error(
            "InvalidArgument", "The position is a number, 0 for a new object.", ArgumentName="position"
        )

    def begin(reader: BodyReader) -> Upload:
        visit.writable()
        check_size(reader)
        about = read_about(visit)
        return visit.store.append(
            visit.bucket,
            visit.key,
            int(text),
            content_type=about.content_type,
            metadata=about.metadata,
            attributes=about.attributes,
        )

    info, _ = await receive(visit, begin)
    headers = {"etag": f'"{info.etag}"', "x-obs-next-append-position": str(info.size)}
    await visit.answer(200, headers | encryption_header(visit))


async def rename(visit: Visit) -> None:
    """Give an object, or a folder with all that lies in it, another name."""
    target = visit.query.get("name", "")
    if not target:
        raise S3Error("InvalidArgument", "The new name is missing.", ArgumentName="name")

    def work() -> None:
        visit.writable()
        check_key(target)
        if visit.key.endswith("/"):
            visit.store.rename_prefix(visit.bucket, visit.key, target.rstrip("/") + "/")
        else:
            visit.store.rename(visit.bucket, visit.key, target)

    await receive_document(visit)
    await visit.do(work)
    await visit.answer(204)


async def set_metadata(visit: Visit) -> None:
    """Change what is kept with an object: all of it (REPLACE), or what is named (REPLACE_NEW)."""
    directive = visit.option("metadata-directive").upper() or "REPLACE"
    if directive not in ("REPLACE", "REPLACE_NEW"):
        raise S3Error("InvalidArgument", "Unknown metadata directive.")

    def work() -> ObjectInfo:
        visit.writable()
        info = visit.store.info(visit.bucket, visit.key)
        about = read_about(visit)
        lasting = {
            name: value
            for name, value in info.attributes.items()
            if directive == "REPLACE_NEW" or name.startswith("checksum-") or name in ("acl", "tagging")
        }
        has_type = directive == "REPLACE" or "content-type" in visit.headers
        return visit.store.copy(
            visit.bucket,
            visit.key,
            visit.bucket,
            visit.key,
            content_type=about.content_type if has_type else info.content_type,
            metadata=(info.metadata if directive == "REPLACE_NEW" else {}) | about.metadata,
            attributes=lasting | about.attributes,
        )

    await receive_document(visit)
    await visit.do(work)
    await visit.answer(200)
