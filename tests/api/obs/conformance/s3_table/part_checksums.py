"""Checksums of parts, and of the objects that are made of them."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable
from typing import Any

from s3_table.case import Answer, Case
from s3_table.multipart_steps import BIG, nothing
from s3_table.stage import Stage

__all__ = ["CASES"]

_PIECES = (BIG, b"the end")


def _encode(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _crc32(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "big")


# As the reference has it: the checksum of the parts' checksums, and how many there are.
_COMPOSITE = f"{_encode(_sha256(b''.join(map(_sha256, _PIECES))))}-2"
_WHOLE = _encode(_crc32(b"".join(_PIECES)))


def begun(algorithm: str, kind: str) -> Callable[[Stage], None]:
    """An upload of two parts with checksums."""

    def step(stage: Stage) -> None:
        made = stage.dev.create_multipart_upload(
            Key=stage.key, ChecksumAlgorithm=algorithm, ChecksumType=kind
        )
        stage.notes["upload"] = made["UploadId"]
        stage.notes["parts"] = []
        for number, piece in enumerate(_PIECES, 1):
            sent = stage.dev.upload_part(
                Key=stage.key,
                UploadId=made["UploadId"],
                PartNumber=number,
                Body=piece,
                ChecksumAlgorithm=algorithm,
            )
            name = f"Checksum{algorithm}"
            stage.notes["parts"].append({"PartNumber": number, "ETag": sent["ETag"], name: sent[name]})

    return step


def _complete(change: Any = None, **more: Any) -> Any:
    def call(stage: Stage) -> Answer:
        parts = stage.notes["parts"]
        return stage.dev.complete_multipart_upload(
            Key=stage.key,
            UploadId=stage.notes["upload"],
            MultipartUpload={"Parts": change(parts) if change else parts},
            **more,
        )

    return call


def _told(stage: Stage, name: str) -> tuple[object, object]:
    answer = stage.dev.head_object(Key=stage.key, ChecksumMode="ENABLED")
    return answer.get(name), answer.get("ChecksumType")


_SHA256, _CRC32 = begun("SHA256", "COMPOSITE"), begun("CRC32", "FULL_OBJECT")

CASES = [
    Case(
        "CreateMultipartUpload",
        "with a checksum",
        lambda s: s.dev.create_multipart_upload(Key=s.key, ChecksumAlgorithm="SHA256"),
        then=lambda s, a: (a.get("ChecksumAlgorithm"), "SHA256"),
    ),
    Case(
        "CreateMultipartUpload",
        "a whole object's checksum that does not follow from its parts",
        lambda s: s.dev.create_multipart_upload(
            Key=s.key, ChecksumAlgorithm="SHA256", ChecksumType="FULL_OBJECT"
        ),
        400,
        "InvalidRequest",
    ),
    Case(
        "ListParts",
        "with their checksums",
        lambda s: s.dev.list_parts(Key=s.key, UploadId=s.notes["upload"]),
        before=(_SHA256,),
        then=lambda s, a: (
            [part.get("ChecksumSHA256") for part in a["Parts"]],
            [_encode(_sha256(piece)) for piece in _PIECES],
        ),
    ),
    Case(
        "CompleteMultipartUpload",
        "a checksum of checksums",
        _complete(),
        before=(_SHA256,),
        then=lambda s, a: (_told(s, "ChecksumSHA256"), (_COMPOSITE, "COMPOSITE")),
    ),
    Case(
        "CompleteMultipartUpload",
        "the checksum of the whole object",
        _complete(),
        before=(_CRC32,),
        then=lambda s, a: (_told(s, "ChecksumCRC32"), (_WHOLE, "FULL_OBJECT")),
    ),
    Case(
        "CompleteMultipartUpload",
        "a whole object's checksum that is right",
        _complete(ChecksumCRC32=_WHOLE),
        before=(_CRC32,),
        then=lambda s, a: (a.get("ChecksumCRC32"), _WHOLE),
    ),
    Case(
        "CompleteMultipartUpload",
        "a whole object's checksum that is wrong",
        _complete(ChecksumCRC32="AAAAAA=="),
        400,
        "BadDigest",
        before=(_CRC32,),
        then=nothing,
    ),
    Case(
        "CompleteMultipartUpload",
        "a part's checksum that is wrong",
        _complete(lambda parts: [{**parts[0], "ChecksumSHA256": parts[1]["ChecksumSHA256"]}, parts[1]]),
        400,
        "InvalidPart",
        before=(_SHA256,),
        then=nothing,
    ),
]
