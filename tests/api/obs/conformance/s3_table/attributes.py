"""GetObjectAttributes."""

from __future__ import annotations

import hashlib
from typing import Any

from s3_table.case import Case
from s3_table.multipart_completion import completed
from s3_table.multipart_steps import BIG
from s3_table.stage import FOREIGN, MISSING, there

__all__ = ["CASES"]

_ALL = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"]


def _get(attributes: list[str], key: str = "there", **more: Any) -> Any:
    return lambda s: s.dev.get_object_attributes(
        **{"Key": getattr(s, key, key), "ObjectAttributes": attributes, **more}
    )


_NAME = "GetObjectAttributes"

CASES = [
    Case(
        _NAME,
        "of an object that came as a whole",
        _get(_ALL),
        before=(there,),
        then=lambda s, a: (
            (a.get("ETag"), a.get("ObjectSize"), a.get("StorageClass"), a.get("ObjectParts")),
            (hashlib.md5(b"0123456789").hexdigest(), 10, "STANDARD", None),
        ),
    ),
    Case(
        _NAME,
        "of an object that came in parts",
        _get(_ALL, "key"),
        before=(completed,),
        then=lambda s, a: (
            (a["ObjectParts"]["TotalPartsCount"], a["ObjectSize"], a["ETag"]),
            (2, len(BIG) + 3, s.notes["etag"].strip('"')),
        ),
    ),
    Case(
        _NAME,
        "the checksum",
        _get(["Checksum"]),
        before=(
            lambda s: s.notes.update(
                a=s.dev.put_object(Key=s.there, Body=b"0123456789", ChecksumAlgorithm="CRC32")
            ),
        ),
        then=lambda s, a: ((a["Checksum"]["ChecksumCRC32"], a.get("ObjectSize")), ("poTHxg==", None)),
    ),
    Case(
        _NAME,
        "an attribute that is unknown",
        _get(["Colour"]),
        400,
        "InvalidArgument",
        before=(there,),
    ),
    Case(
        _NAME,
        "none asked for",
        lambda s: s.raw("GET", s.path(s.there), query=[("attributes", "")]),
        400,
        "InvalidArgument",
        before=(there,),
    ),
    Case(_NAME, "a missing key", _get(_ALL), 404, "NoSuchKey"),
    Case(_NAME, "a missing bucket", _get(_ALL, Bucket=MISSING), 404, "NoSuchBucket"),
    Case(_NAME, "somebody else's object", _get(_ALL, "secret", Bucket=FOREIGN), 403, "AccessDenied"),
    Case(
        _NAME,
        "anonymous",
        lambda s: s.nobody.get_object_attributes(Key=s.there, ObjectAttributes=_ALL),
        403,
        "AccessDenied",
        before=(there,),
    ),
]
