"""Checksums of S3: each kind verified, kept for objects in parts as well, and quotas told before the body."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import zlib
from collections.abc import Callable
from typing import Any

import anycrc
import google_crc32c
import httpx
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from trainshed.api.obs.checksums import combine_checksums, make_checksum
from trainshed.store import open_store

MIB = 1 << 20
CRC64 = anycrc.Model("CRC64-NVME")
DIGESTS: dict[str, Callable[[bytes], bytes]] = {
    "CRC32": lambda data: zlib.crc32(data).to_bytes(4, "big"),
    "CRC32C": lambda data: google_crc32c.value(data).to_bytes(4, "big"),
    "CRC64NVME": lambda data: CRC64.calc(data).to_bytes(8, "big"),
    "SHA1": lambda data: hashlib.sha1(data).digest(),
    "SHA256": lambda data: hashlib.sha256(data).digest(),
}


def text(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(ClientError) as error:
        call()
    return str(error.value.response["Error"]["Code"])


def test_the_check_values_of_the_catalogue() -> None:
    known = {"crc32": "cbf43926", "crc32c": "e3069283", "crc64nvme": "ae8b14860a799888"}
    for name, value in known.items():
        checksum = make_checksum(name)
        checksum.update(b"1234")
        checksum.update(b"56789")
        assert checksum.digest().hex() == value


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME"])
def test_the_whole_follows_from_the_parts(algorithm: str) -> None:
    pieces = [os.urandom(size) for size in (70_000, 1, 0, 12_345)]
    parts = [(text(DIGESTS[algorithm](piece)), len(piece)) for piece in pieces]
    assert combine_checksums(algorithm.lower(), parts, "FULL_OBJECT") == text(
        DIGESTS[algorithm](b"".join(pieces))
    )


def test_crc64nvme_is_verified_and_kept(s3: Any) -> None:
    data = os.urandom(300_000)
    value = text(DIGESTS["CRC64NVME"](data))
    put = s3.put_object(Bucket="data", Key="nvme", Body=data, ChecksumCRC64NVME=value)
    assert put["ChecksumCRC64NVME"] == value and put["ChecksumType"] == "FULL_OBJECT"
    assert s3.head_object(Bucket="data", Key="nvme", ChecksumMode="ENABLED")["ChecksumCRC64NVME"] == value
    wrong = text(DIGESTS["CRC64NVME"](b"other"))
    assert refusal(lambda: s3.put_object(Bucket="data", Key="nvme", Body=data, ChecksumCRC64NVME=wrong)) == (
        "BadDigest"
    )


def test_a_checksum_that_cannot_be_verified_is_refused(server: Any, s3: Any) -> None:
    pair, url = server.keys["dev"], f"{server.url}/data/unknown"
    sent = {"x-amz-content-sha256": hashlib.sha256(b"x").hexdigest(), "x-amz-checksum-md9": "AAAA"}
    request = AWSRequest("PUT", url, sent, data=b"x")
    S3SigV4Auth(Credentials(pair.access_key, pair.secret_key), "s3", "us-east-1").add_auth(request)
    answer = httpx.put(url, content=b"x", headers=dict(request.headers))
    assert answer.status_code == 400 and "Checksum algorithm provided is unsupported" in answer.text
    assert refusal(
        lambda: s3.create_multipart_upload(
            Bucket="data", Key="k", ChecksumAlgorithm="SHA256", ChecksumType="FULL_OBJECT"
        )
    ) == ("InvalidRequest")


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        ("CRC32", "COMPOSITE"),
        ("CRC32", "FULL_OBJECT"),
        ("CRC32C", "FULL_OBJECT"),
        ("CRC64NVME", "FULL_OBJECT"),
        ("SHA1", "COMPOSITE"),
        ("SHA256", "COMPOSITE"),
    ],
)
def test_an_object_in_parts_has_a_checksum(s3: Any, algorithm: str, kind: str) -> None:
    name, digest = f"Checksum{algorithm}", DIGESTS[algorithm]
    pieces = [os.urandom(5 * MIB), os.urandom(12345)]
    place = {"Bucket": "data", "Key": f"parts/{algorithm}/{kind}"}
    made = s3.create_multipart_upload(**place, ChecksumAlgorithm=algorithm, ChecksumType=kind)
    assert made["ChecksumAlgorithm"] == algorithm and made["ChecksumType"] == kind
    upload = {**place, "UploadId": made["UploadId"]}
    parts = []
    for number, piece in enumerate(pieces, 1):
        sums = {name: text(digest(piece))}
        sent = s3.upload_part(**upload, PartNumber=number, Body=piece, **sums)
        parts.append({"PartNumber": number, "ETag": sent["ETag"], **sums})
    wanted = (
        text(digest(b"".join(pieces)))
        if kind == "FULL_OBJECT"
        else text(digest(b"".join(map(digest, pieces)))) + "-2"
    )
    complete = {**upload, "MultipartUpload": {"Parts": parts}}
    if kind == "FULL_OBJECT":
        wrong = {name: text(digest(b"other"))}
        assert refusal(lambda: s3.complete_multipart_upload(**complete, **wrong)) == "BadDigest"
        complete |= {name: wanted, "ChecksumType": kind}
    done = s3.complete_multipart_upload(**complete)
    assert (done[name], done["ChecksumType"]) == (wanted, kind)
    # Said twice, it is the same object.
    assert s3.complete_multipart_upload(**complete)[name] == wanted
    got = s3.get_object(**place, ChecksumMode="ENABLED")
    assert (got[name], got["ChecksumType"]) == (wanted, kind)
    assert got["Body"].read() == b"".join(pieces)
    copied = {"Bucket": "data", "Key": "copied"}
    s3.copy_object(**copied, CopySource=place)
    assert s3.head_object(**copied, ChecksumMode="ENABLED")[name] == wanted


def test_a_quota_is_told_before_the_body(server: Any, s3: Any) -> None:
    """Only headers are sent: whoever waits for the body would never answer."""
    store = open_store(f"file://{server.home.store}")
    workspace = store.bucket("data").workspace_id
    try:
        s3.put_object(Bucket="data", Key="room", Body=os.urandom(MIB))
        store.set_quota(workspace, store.usage(workspace).bytes + MIB // 2, 0)
        size = 100 * MIB
        place = {"Bucket": "data", "Key": "large"}
        url = s3.generate_presigned_url("put_object", place)
        # A client that neither asks first nor sends is answered after a moment.
        assert headers_only(server, url, size, {})[:2] == (403, "QuotaExceeded")
        upload = s3.create_multipart_upload(**place)["UploadId"]
        part = s3.generate_presigned_url("upload_part", {**place, "UploadId": upload, "PartNumber": 1})
        asking = {"Expect": "100-continue"}
        assert headers_only(server, part, size, asking)[:2] == (403, "QuotaExceeded")
        status, _, answer = headers_only(
            server,
            "/_/v1/buckets/data/object?key=large",
            size,
            {**asking, "Authorization": f"Bearer {server.token}"},
        )
        assert status == 413 and "quota_exceeded" in answer
        # What is replaced makes room.
        s3.put_object(Bucket="data", Key="room", Body=os.urandom(MIB + MIB // 4))
    finally:
        store.set_quota(workspace, None, None)
        store.close()


def headers_only(server: Any, url: str, size: int, more: dict[str, str]) -> tuple[int, str, str]:
    """The answer to a PUT whose body never comes."""
    path = "/" + url.split("/", 3)[3] if url.startswith("http") else url
    lines = [f"PUT {path} HTTP/1.1", f"Host: 127.0.0.1:{server.port}", f"Content-Length: {size}"]
    lines += [f"{name}: {value}" for name, value in more.items()]
    with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        connection.settimeout(90)
        answer = b""
        while b"</Error>" not in answer and b'"where"' not in answer:
            piece = connection.recv(65536)
            if not piece:
                break
            answer += piece
    shown = answer.decode()
    return int(shown.split()[1]), shown.partition("<Code>")[2].partition("</Code>")[0], shown
