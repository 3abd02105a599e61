"""Objects that arrive in parts: begin, send, copy, complete, abort, and what is under way."""

from __future__ import annotations

import re
from typing import Any

from trainshed.api.obs.body import BodyReader, receive, receive_document
from trainshed.api.obs.checksums import announced_algorithm, check_algorithm, choose_checksum_type
from trainshed.api.obs.conditions import check_copy_source, read_write_condition
from trainshed.api.obs.encryption import check_encryption, encryption_header
from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.listing import read_encoding, read_number
from trainshed.api.obs.object_headers import read_about, version_header
from trainshed.api.obs.object_writing import check_size, read_copied, read_copy_source
from trainshed.api.obs.part_checksums import UPLOAD_CHECKSUM, combine_part_sums
from trainshed.api.obs.visit import Visit, owner_of
from trainshed.api.obs.xml_codec import children, format_time, malformed_xml, parse_xml, text_of
from trainshed.store.embedded.room import require_room
from trainshed.store.object_store import (
    Bucket,
    MultipartUpload,
    ObjectInfo,
    Part,
    PartListing,
    PartUpload,
    UploadListing,
)

__all__ = [
    "abort_upload",
    "complete_upload",
    "copy_part",
    "create_upload",
    "list_parts",
    "list_uploads",
    "put_part",
]

# All parts but the last have at least this size.
MIN_PART_SIZE = 5 << 20
_MAX_PARTS = 10_000
_MAX_PAGE = 1000
_RANGE = re.compile(r"bytes=(\d{1,16})-(\d{1,16})")


async def create_upload(visit: Visit) -> None:
    """Begin an upload."""

    kept, headers = {}, encryption_header(visit)
    if visit.option("checksum-algorithm"):
        algorithm = check_algorithm(visit.option("checksum-algorithm"))
        kind = choose_checksum_type(algorithm, visit.option("checksum-type"))
        kept[UPLOAD_CHECKSUM] = f"{algorithm} {kind}"
        headers |= {"x-amz-checksum-algorithm": algorithm.upper(), "x-amz-checksum-type": kind}

    def work() -> MultipartUpload:
        visit.writable()
        about = read_about(visit)
        return visit.store.create_upload(
            visit.bucket,
            visit.key,
            content_type=about.content_type,
            metadata=about.metadata,
            attributes=about.attributes | kept,
        )

    await receive_document(visit)
    upload = await visit.do(work)
    content = [("Bucket", visit.bucket), ("Key", visit.key), ("UploadId", upload.upload_id)]
    await visit.answer_xml("InitiateMultipartUploadResult", content, headers=headers)


async def put_part(visit: Visit) -> None:
    """Take a part."""
    number = _read_part_number(visit)

    def begin(reader: BodyReader) -> PartUpload:
        bucket, upload_id = visit.writable(), visit.query.get("uploadId", "")
        check_size(reader)
        check_encryption(visit)
        require_room(visit.store, bucket, visit.key, reader.size, part=(upload_id, number))
        return visit.store.upload_part(visit.bucket, visit.key, upload_id, number, size=reader.size)

    part, checksum = await receive(visit, begin)
    headers = {"etag": f'"{part.etag}"', **encryption_header(visit)}
    headers.update({f"x-amz-{name}": value for name, value in checksum.items()})
    await visit.answer(200, headers)


async def copy_part(visit: Visit) -> None:
    """Make a part from an object, or from a range of it."""
    number = _read_part_number(visit)
    source, key, version = read_copy_source(visit)

    def work() -> tuple[ObjectInfo, Part]:
        visit.readable_object(source, key, version)
        visit.writable()
        check_encryption(visit)
        info = read_copied(visit, source, key, version)
        check_copy_source(visit.headers, visit.prefix, info)
        start, length = _read_range(visit.option("copy-source-range"), info)
        return info, visit.store.copy_part(
            visit.bucket,
            visit.key,
            visit.query.get("uploadId", ""),
            number,
            source,
            key,
            version_id=version,
            start=start,
            length=length,
        )

    original, part = await visit.do(work)
    headers = encryption_header(visit)
    if original.version_id:
        headers["x-amz-copy-source-version-id"] = original.version_id
    content = [("LastModified", format_time(part.modified_at)), ("ETag", f'"{part.etag}"')]
    await visit.answer_xml("CopyPartResult", content, headers=headers)


def _read_range(header: str, info: ObjectInfo) -> tuple[int, int | None]:
    if not header:
        return 0, None
    found = _RANGE.fullmatch(header.strip())
    if found is None:
        raise S3Error(
            "InvalidArgument", "The x-amz-copy-source-range value must be of the form bytes=first-last."
        )
    first, last = int(found[1]), int(found[2])
    if first > last or last >= info.size:
        raise S3Error(
            "InvalidArgument" if first > last else "InvalidRange",
            f"Range specified is not valid for source object of size: {info.size}",
        )
    return first, last - first + 1


async def complete_upload(visit: Visit) -> None:
    """Make the object of its parts."""
    await visit.do(visit.writable)
    # A checksum in the headers is that of the object.
    announced = announced_algorithm(visit.headers)
    root = parse_xml(await receive_document(visit, has_checksum=False), "CompleteMultipartUpload")
    parts: list[tuple[int, str]] = []
    checksums: dict[int, dict[str, str]] = {}
    for entry in children(root, "Part"):
        number = text_of(entry, "PartNumber").strip()
        if not (number.isascii() and number.isdigit() and len(number) < 6):
            raise malformed_xml()
        parts.append((int(number), text_of(entry, "ETag").strip().strip('"')))
        checksums[int(number)] = {
            f"checksum-{element.tag.removeprefix('Checksum').lower()}": (element.text or "").strip()
            for element in entry
            if element.tag.startswith("Checksum")
        }
    if not 1 <= len(parts) <= _MAX_PARTS:
        raise malformed_xml()

    def work() -> ObjectInfo:
        visit.writable()
        upload_id = visit.query.get("uploadId", "")
        combined = combine_part_sums(visit, upload_id, parts, checksums)
        expected = visit.headers.get(f"x-amz-checksum-{announced}", "") if announced else ""
        if expected and combined.get(f"checksum-{announced}", expected) != expected:
            raise S3Error(
                "BadDigest", f"The {announced.upper()} you specified did not match the calculated checksum."
            )
        return visit.store.complete_upload(
            visit.bucket,
            visit.key,
            upload_id,
            parts,
            attributes=combined,
            condition=read_write_condition(visit.headers),
            # OBS takes parts from 100 KB, as its documentation says.
            min_part_size=100 << 10 if visit.is_obs else MIN_PART_SIZE,
        )

    info = await visit.do(work)
    content = [
        ("Location", f"{visit.exchange.scheme}://{visit.headers.get('host', '')}{visit.exchange.path}"),
        ("Bucket", visit.bucket),
        ("Key", visit.key),
        ("ETag", f'"{info.etag}"'),
    ]
    for name, value in info.attributes.items():
        if name.startswith("checksum-"):
            content.append((f"Checksum{name.removeprefix('checksum-').upper()}", value))
            content.append(("ChecksumType", "COMPOSITE" if "-" in value else "FULL_OBJECT"))
    headers = version_header(info) | encryption_header(visit)
    await visit.answer_xml("CompleteMultipartUploadResult", content, headers=headers)


async def abort_upload(visit: Visit) -> None:
    """Discard an upload and its parts."""

    def work() -> None:
        visit.writable()
        visit.store.abort_upload(visit.bucket, visit.key, visit.query.get("uploadId", ""))

    await visit.do(work)
    await visit.answer(204)


async def list_parts(visit: Visit) -> None:
    """The parts that are here."""
    limit = read_number(visit, "max-parts", _MAX_PAGE)
    after = read_number(visit, "part-number-marker", 2**31 - 1, default=0)
    encode = read_encoding(visit)

    def work() -> tuple[Bucket, PartListing]:
        bucket = visit.writable()
        upload_id = visit.query.get("uploadId", "")
        return bucket, visit.store.list_parts(
            visit.bucket, visit.key, upload_id, after=after, limit=max(limit, 1)
        )

    bucket, page = await visit.do(work)
    owner = owner_of(bucket.workspace_id)
    content: list[tuple[str, Any]] = [
        ("Bucket", visit.bucket),
        ("Key", encode(visit.key)),
        ("UploadId", page.upload.upload_id),
        ("Initiator", owner),
        ("Owner", owner),
        ("StorageClass", page.upload.attributes.get("storage-class", "STANDARD")),
        ("PartNumberMarker", after),
        ("NextPartNumberMarker", page.next_after or (page.parts[-1].number if page.parts else 0)),
        ("MaxParts", limit),
        ("EncodingType", visit.query.get("encoding-type")),
        ("IsTruncated", bool(page.next_after)),
    ]
    for part in page.parts:
        entry: list[tuple[str, Any]] = [
            ("PartNumber", part.number),
            ("LastModified", format_time(part.modified_at)),
            ("ETag", f'"{part.etag}"'),
            ("Size", part.size),
        ]
        for name, value in part.attributes.items():
            if name.startswith("checksum-"):
                entry.append((f"Checksum{name.removeprefix('checksum-').upper()}", value))
        content.append(("Part", entry))
    await visit.answer_xml("ListPartsResult", content)


async def list_uploads(visit: Visit) -> None:
    """The uploads that are under way in a bucket."""
    query = visit.query
    limit = read_number(visit, "max-uploads", _MAX_PAGE)
    encode = read_encoding(visit)

    def work() -> tuple[Bucket, UploadListing]:
        bucket = visit.owned()
        return bucket, visit.store.list_uploads(
            visit.bucket,
            query.get("prefix", ""),
            delimiter=query.get("delimiter", ""),
            after_key=query.get("key-marker", ""),
            after_upload=query.get("upload-id-marker", "") if query.get("key-marker") else "",
            limit=max(limit, 1),
        )

    bucket, page = await visit.do(work)
    owner = owner_of(bucket.workspace_id)
    content: list[tuple[str, Any]] = [
        ("Bucket", visit.bucket),
        ("KeyMarker", encode(query.get("key-marker", ""))),
        ("UploadIdMarker", query.get("upload-id-marker", "")),
        ("NextKeyMarker", encode(page.next_after_key)),
        ("NextUploadIdMarker", page.next_after_upload),
        ("Prefix", encode(query["prefix"]) if query.get("prefix") else None),
        ("Delimiter", encode(query["delimiter"]) if query.get("delimiter") else None),
        ("EncodingType", query.get("encoding-type")),
        ("MaxUploads", limit),
        ("IsTruncated", bool(page.next_after_key)),
    ]
    for upload in page.uploads:
        content.append(
            (
                "Upload",
                [
                    ("Key", encode(upload.key)),
                    ("UploadId", upload.upload_id),
                    ("Initiator", owner),
                    ("Owner", owner),
                    ("StorageClass", upload.attributes.get("storage-class", "STANDARD")),
                    ("Initiated", format_time(upload.created_at)),
                ],
            )
        )
    content += [("CommonPrefixes", [("Prefix", encode(folder))]) for folder in page.folders]
    await visit.answer_xml("ListMultipartUploadsResult", content)


def _read_part_number(visit: Visit) -> int:
    text = visit.query.get("partNumber", "")
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= _MAX_PARTS):
        raise S3Error(
            "InvalidArgument",
            f"Part number must be an integer between 1 and {_MAX_PARTS}, inclusive",
            ArgumentName="partNumber",
            ArgumentValue=text[:40],
        )
    return int(text)
