"""Steps of uploads in parts that several modules of the table take."""

from __future__ import annotations

from typing import Any

from s3_table.case import Answer
from s3_table.stage import Stage

__all__ = ["BIG", "MIB", "NONE", "abort", "list_sizes", "nothing", "send_part", "two_parts"]

MIB = 1 << 20
BIG = b"x" * (5 * MIB)


def two_parts(stage: Stage) -> None:
    """An upload of two parts, the first as small as it may be."""
    stage.notes["upload"] = stage.dev.create_multipart_upload(
        Key=stage.key, Metadata={"a": "1"}, ContentType="text/plain"
    )["UploadId"]
    stage.notes["parts"] = [
        {"PartNumber": number, "ETag": send_part(stage, number, body)["ETag"]}
        for number, body in ((1, BIG), (2, b"end"))
    ]


def send_part(stage: Stage, number: int, body: bytes, **more: Any) -> Answer:
    """Send a part of the upload that was begun."""
    return stage.dev.upload_part(
        **{"Key": stage.key, "UploadId": stage.notes["upload"], "PartNumber": number, "Body": body, **more}
    )


def list_sizes(stage: Stage, **more: Any) -> list[tuple[int, int]]:
    """Number and size of each part that is there."""
    page = stage.dev.list_parts(Key=stage.key, UploadId=stage.notes["upload"], **more)
    return [(part["PartNumber"], part["Size"]) for part in page.get("Parts", [])]


def nothing(s: Stage, a: Answer) -> tuple[object, object]:
    """Nothing has the case's key."""
    return s.dev.head_object(Key=s.key).status, 404


NONE = {"UploadId": "00000000000000000000000000000000"}


def abort(stage: Stage, **more: Any) -> Answer:
    """Abort the upload that was begun."""
    return stage.dev.abort_multipart_upload(**{"Key": stage.key, "UploadId": stage.notes["upload"], **more})
