"""Objects in parts, and objects with versions, as S3's reference describes them."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

MIB = 1 << 20


def refusal(call: Callable[[], Any]) -> tuple[str, int]:
    with pytest.raises(ClientError) as error:
        call()
    answer = error.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


class Parts:
    """An upload under way."""

    def __init__(self, s3: Any, key: str, **more: Any) -> None:
        self.s3 = s3
        self.place = {"Bucket": "data", "Key": key}
        self.id = s3.create_multipart_upload(**self.place, **more)["UploadId"]
        self.upload = {**self.place, "UploadId": self.id}

    def send(self, number: int, data: bytes) -> dict[str, Any]:
        answer = self.s3.upload_part(**self.upload, PartNumber=number, Body=data)
        return {"PartNumber": number, "ETag": answer["ETag"]}

    def complete(self, *parts: dict[str, Any], **more: Any) -> Any:
        return self.s3.complete_multipart_upload(
            **self.upload, MultipartUpload={"Parts": list(parts)}, **more
        )


def test_parts_become_an_object(s3: Any) -> None:
    first, second = os.urandom(5 * MIB), os.urandom(1000)
    parts = Parts(s3, "parts", Metadata={"a": "b"}, ContentType="x/y")
    two, one = parts.send(2, second), parts.send(1, first)
    assert refusal(lambda: s3.head_object(**parts.place)) == ("404", 404)
    listed = s3.list_parts(**parts.upload, MaxParts=1)
    assert listed["IsTruncated"] and [part["Size"] for part in listed["Parts"]] == [5 * MIB]
    rest = s3.list_parts(**parts.upload, PartNumberMarker=listed["NextPartNumberMarker"])
    assert [part["PartNumber"] for part in rest["Parts"]] == [2] and not rest["IsTruncated"]
    done = parts.complete(one, two)
    digest = hashlib.md5(hashlib.md5(first).digest() + hashlib.md5(second).digest()).hexdigest()
    assert done["ETag"] == f'"{digest}-2"' and done["Bucket"] == "data" and done["Key"] == "parts"
    got = s3.get_object(**parts.place)
    assert got["Body"].read() == first + second
    assert got["Metadata"] == {"a": "b"} and got["ContentType"] == "x/y"
    part = s3.get_object(**parts.place, PartNumber=2)
    assert part["Body"].read() == second and part["PartsCount"] == 2
    assert s3.head_object(**parts.place, PartNumber=1)["ContentLength"] == 5 * MIB
    assert refusal(lambda: s3.get_object(**parts.place, PartNumber=3)) == ("InvalidPartNumber", 416)
    # A client that did not hear the answer may ask again.
    assert parts.complete(one, two)["ETag"] == done["ETag"]


def test_refusals(s3: Any, s3_as: Callable[..., Any]) -> None:
    parts = Parts(s3, "refused")
    small, last = parts.send(1, b"small"), parts.send(2, b"last")
    assert refusal(lambda: parts.complete(small, last)) == ("EntityTooSmall", 400)
    assert refusal(lambda: parts.complete(last, small)) == ("InvalidPartOrder", 400)
    assert refusal(lambda: parts.complete({**last, "ETag": '"0"'})) == ("InvalidPart", 400)
    assert refusal(lambda: parts.complete({**last, "PartNumber": 7})) == ("InvalidPart", 400)
    assert refusal(lambda: parts.complete()) == ("MalformedXML", 400)
    assert refusal(lambda: parts.send(10001, b"")) == ("InvalidArgument", 400)
    assert refusal(lambda: parts.send(0, b"")) == ("InvalidArgument", 400)
    parts.complete(last)
    assert s3.get_object(**parts.place)["Body"].read() == b"last"
    gone = Parts(s3, "gone")
    part = gone.send(1, b"x")
    stranger = s3_as("stranger")
    assert refusal(lambda: stranger.list_parts(**gone.upload)) == ("AccessDenied", 403)
    assert refusal(lambda: stranger.abort_multipart_upload(**gone.upload)) == ("AccessDenied", 403)
    other = {**gone.upload, "Key": "another"}
    assert refusal(lambda: s3.abort_multipart_upload(**other)) == ("NoSuchUpload", 404)
    s3.abort_multipart_upload(**gone.upload)
    assert refusal(lambda: gone.complete(part)) == ("NoSuchUpload", 404)
    assert refusal(lambda: gone.send(1, b"x")) == ("NoSuchUpload", 404)
    assert refusal(lambda: s3.list_parts(**gone.upload)) == ("NoSuchUpload", 404)
    missing = {"Bucket": "missing", "Key": "k"}
    assert refusal(lambda: s3.create_multipart_upload(**missing)) == ("NoSuchBucket", 404)


def test_a_completion_may_be_conditional(s3: Any) -> None:
    s3.put_object(Bucket="data", Key="taken", Body=b"x")
    parts = Parts(s3, "taken")
    part = parts.send(1, b"y")
    assert refusal(lambda: parts.complete(part, IfNoneMatch="*")) == ("PreconditionFailed", 412)
    assert s3.get_object(Bucket="data", Key="taken")["Body"].read() == b"x"


def test_uploads_under_way(s3: Any) -> None:
    s3.create_bucket(Bucket="underway")
    made = []
    for key in ("a/1", "a/2", "b", "b"):
        made.append((key, s3.create_multipart_upload(Bucket="underway", Key=key)["UploadId"]))
    pages = s3.get_paginator("list_multipart_uploads").paginate(
        Bucket="underway", PaginationConfig={"PageSize": 1}
    )
    assert [(entry["Key"], entry["UploadId"]) for page in pages for entry in page.get("Uploads", [])] == made
    folders = s3.list_multipart_uploads(Bucket="underway", Delimiter="/")
    assert [entry["Key"] for entry in folders["Uploads"]] == ["b", "b"]
    assert folders["CommonPrefixes"] == [{"Prefix": "a/"}]


def test_parts_copied_from_objects(s3: Any) -> None:
    data = os.urandom(6 * MIB)
    s3.put_object(Bucket="data", Key="source", Body=data)
    parts = Parts(s3, "assembled")
    copied = []
    for number, span in ((1, f"bytes=0-{5 * MIB - 1}"), (2, f"bytes={5 * MIB}-{6 * MIB - 1}")):
        answer = s3.upload_part_copy(
            **parts.upload, PartNumber=number, CopySource="data/source", CopySourceRange=span
        )
        copied.append({"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]})
    parts.complete(*copied)
    assert s3.get_object(**parts.place)["Body"].read() == data
    again = Parts(s3, "again")

    def copy(**more: Any) -> Any:
        return s3.upload_part_copy(**again.upload, PartNumber=1, **{"CopySource": "data/source", **more})

    assert refusal(lambda: copy(CopySourceRange="bytes=0-")) == ("InvalidArgument", 400)
    assert refusal(lambda: copy(CopySourceRange=f"bytes=0-{6 * MIB}")) == ("InvalidRange", 416)
    assert refusal(lambda: copy(CopySource="data/none")) == ("NoSuchKey", 404)
    assert refusal(lambda: copy(CopySourceIfMatch='"0"')) == ("PreconditionFailed", 412)
    copy()


def test_the_transfer_manager(s3: Any, tmp_path: Path) -> None:
    data = os.urandom(13 * MIB + 5)
    config = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB, max_concurrency=4)
    s3.upload_fileobj(io.BytesIO(data), "data", "managed", Config=config)
    s3.download_file("data", "managed", str(tmp_path / "managed"), Config=config)
    assert (tmp_path / "managed").read_bytes() == data
    s3.copy({"Bucket": "data", "Key": "managed"}, "data", "managed-copy", Config=config)
    assert s3.get_object(Bucket="data", Key="managed-copy")["Body"].read() == data


def test_versions(s3: Any) -> None:
    s3.create_bucket(Bucket="kept")
    assert "Status" not in s3.get_bucket_versioning(Bucket="kept")
    s3.put_object(Bucket="kept", Key="k", Body=b"before")
    s3.put_bucket_versioning(Bucket="kept", VersioningConfiguration={"Status": "Enabled"})
    assert s3.get_bucket_versioning(Bucket="kept")["Status"] == "Enabled"
    one = s3.put_object(Bucket="kept", Key="k", Body=b"one")["VersionId"]
    two = s3.put_object(Bucket="kept", Key="k", Body=b"two")["VersionId"]
    assert s3.get_object(Bucket="kept", Key="k")["VersionId"] == two
    assert s3.get_object(Bucket="kept", Key="k", VersionId=one)["Body"].read() == b"one"
    assert s3.get_object(Bucket="kept", Key="k", VersionId="null")["Body"].read() == b"before"
    gone = s3.delete_object(Bucket="kept", Key="k")
    assert gone["DeleteMarker"] and gone["VersionId"]
    assert refusal(lambda: s3.get_object(Bucket="kept", Key="k")) == ("NoSuchKey", 404)
    assert refusal(lambda: s3.get_object(Bucket="kept", Key="k", VersionId=gone["VersionId"])) == (
        "MethodNotAllowed",
        405,
    )
    assert refusal(lambda: s3.get_object(Bucket="kept", Key="k", VersionId="none")) == ("NoSuchVersion", 404)
    listed = s3.list_object_versions(Bucket="kept")
    assert [version["VersionId"] for version in listed["Versions"]] == [two, one, "null"]
    assert [marker["IsLatest"] for marker in listed["DeleteMarkers"]] == [True]
    s3.copy_object(Bucket="kept", Key="k", CopySource={"Bucket": "kept", "Key": "k", "VersionId": one})
    assert s3.get_object(Bucket="kept", Key="k")["Body"].read() == b"one"
    pages = s3.get_paginator("list_object_versions").paginate(Bucket="kept", PaginationConfig={"PageSize": 1})
    every = [
        entry for page in pages for kind in ("Versions", "DeleteMarkers") for entry in page.get(kind, [])
    ]
    assert len(every) == 5
    wanted = [{"Key": "k", "VersionId": entry["VersionId"]} for entry in every]
    s3.delete_objects(Bucket="kept", Delete={"Objects": wanted})
    assert "Versions" not in s3.list_object_versions(Bucket="kept")
    s3.delete_bucket(Bucket="kept")
    assert refusal(
        lambda: s3.put_bucket_versioning(Bucket="data", VersioningConfiguration={"Status": "On"})
    ) == ("MalformedXML", 400)
