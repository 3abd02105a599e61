"""Buckets and objects through boto3: walks of several steps. Single requests are in the table of `conformance/`."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import socket
import time
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import google_crc32c
import httpx
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from trainshed.api.obs.signatures.aws_v4 import signing_key

Call = Callable[[Any], Any]


def refusal(call: Callable[[], Any]) -> tuple[str, int]:
    with pytest.raises(ClientError) as error:
        call()
    answer = error.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


def send(
    server: Any,
    method: str,
    path: str,
    *,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    user: str = "dev",
    sha256: str = "",
) -> httpx.Response:
    """A request signed with V4 that no client would make."""
    pair = server.keys[user]
    sent = {"x-amz-content-sha256": sha256 or hashlib.sha256(body).hexdigest(), **(headers or {})}
    request = AWSRequest(method, server.url + path, sent, data=body)
    signer = S3SigV4Auth(Credentials(pair.access_key, pair.secret_key), "s3", "us-east-1")
    if sha256:
        signer.payload = lambda request: sha256  # type: ignore[method-assign]
    signer.add_auth(request)
    return httpx.request(method, server.url + path, headers=dict(request.headers), content=body)


def code(answer: httpx.Response) -> tuple[str, int]:
    return answer.text.partition("<Code>")[2].partition("</Code>")[0], answer.status_code


@pytest.fixture(scope="module")
def filled(s3: Any, s3_as: Callable[..., Any]) -> Any:
    """A bucket `data` with an object `there`, and a bucket `foreign` of another workspace."""
    s3.put_object(Bucket="data", Key="there", Body=b"0123456789")
    stranger = s3_as("stranger")
    stranger.create_bucket(Bucket="foreign")
    stranger.put_object(Bucket="foreign", Key="secret", Body=b"x")
    return s3


def test_viewers_read_and_do_not_write(filled: Any, s3_as: Callable[..., Any]) -> None:
    viewer = s3_as("viewer")
    assert viewer.get_object(Bucket="data", Key="there")["Body"].read() == b"0123456789"
    assert refusal(lambda: viewer.put_object(Bucket="data", Key="k", Body=b"")) == ("AccessDenied", 403)
    assert refusal(lambda: viewer.create_bucket(Bucket="viewers")) == ("AccessDenied", 403)
    assert refusal(lambda: viewer.delete_object(Bucket="data", Key="there")) == ("AccessDenied", 403)


def test_nobody_is_let_in_without_a_key(filled: Any, s3_as: Callable[..., Any]) -> None:
    nobody = s3_as("")
    assert refusal(lambda: nobody.list_buckets()) == ("AccessDenied", 403)
    assert refusal(lambda: nobody.get_object(Bucket="data", Key="there")) == ("AccessDenied", 403)
    assert refusal(lambda: nobody.put_object(Bucket="data", Key="k", Body=b"")) == ("AccessDenied", 403)
    assert refusal(lambda: nobody.get_object(Bucket="missing", Key="k")) == ("NoSuchBucket", 404)
    wrong = s3_as()
    wrong._request_signer._credentials.secret_key += "x"
    assert refusal(lambda: wrong.list_buckets()) == ("SignatureDoesNotMatch", 403)
    wrong._request_signer._credentials.access_key = "AKUNKNOWN"
    assert refusal(lambda: wrong.list_buckets()) == ("InvalidAccessKeyId", 403)


def test_bucket_walk(s3: Any) -> None:
    s3.create_bucket(Bucket="walk", CreateBucketConfiguration={"LocationConstraint": "cn-north-4"})
    assert s3.head_bucket(Bucket="walk")["BucketRegion"] == "us-east-1"
    assert s3.get_bucket_location(Bucket="walk")["LocationConstraint"] is None
    assert "walk" in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
    assert s3.list_objects_v2(Bucket="walk")["KeyCount"] == 0
    s3.delete_bucket(Bucket="walk")
    assert refusal(lambda: s3.head_bucket(Bucket="walk")) == ("404", 404)


@pytest.mark.parametrize("size", [0, 1, 1 << 20, 5_000_001])
def test_bytes_and_headers_come_back(s3: Any, size: int) -> None:
    data = os.urandom(size)
    sent = {
        "ContentType": "image/png",
        "CacheControl": "max-age=5",
        "ContentDisposition": 'attachment; filename="a.png"',
        "ContentEncoding": "gzip",
        "ContentLanguage": "de",
        "Metadata": {"one": "1", "two-words": "a  b"},
    }
    put = s3.put_object(Bucket="data", Key=f"size/{size}", Body=data, StorageClass="STANDARD_IA", **sent)
    assert put["ETag"] == f'"{hashlib.md5(data).hexdigest()}"'
    for answer in (
        s3.get_object(Bucket="data", Key=f"size/{size}"),
        s3.head_object(Bucket="data", Key=f"size/{size}"),
    ):
        assert {name: answer[name] for name in sent} == sent
        assert answer["ContentLength"] == size and answer["ETag"] == put["ETag"]
        assert answer["StorageClass"] == "STANDARD_IA"
        if "Body" in answer:
            assert answer["Body"].read() == data


@pytest.mark.parametrize(
    "key", ["a b+c&d=e?f#g%20", "文件/é", "x" * 1024, "a/./b/", "a//b", "~*'()!@$,;:", "/x"]
)
def test_any_key_goes_through(s3: Any, key: str) -> None:
    s3.put_object(Bucket="data", Key=key, Body=key.encode())
    assert s3.get_object(Bucket="data", Key=key)["Body"].read() == key.encode()
    assert s3.list_objects_v2(Bucket="data", Prefix=key)["Contents"][0]["Key"] == key
    s3.copy_object(Bucket="data", Key="copy", CopySource={"Bucket": "data", "Key": key})
    s3.delete_objects(Bucket="data", Delete={"Objects": [{"Key": key}, {"Key": "copy"}]})
    assert refusal(lambda: s3.get_object(Bucket="data", Key=key)) == ("NoSuchKey", 404)


@pytest.mark.parametrize("path", ["/data/%2e%2e/x", "/data/a%00b", "/data/%ff", "/data/..%2f..%2fetc"])
def test_hostile_paths_are_keys_or_refused(s3: Any, server: Any, path: str) -> None:
    answer = send(server, "PUT", path, body=b"x")
    assert answer.status_code in (200, 400)
    if answer.status_code == 200:
        assert send(server, "GET", path).content == b"x"
        assert send(server, "DELETE", path).status_code == 204


def test_ranges_and_conditions(filled: Any) -> None:
    def get(**more: Any) -> bytes:
        return filled.get_object(Bucket="data", Key="there", **more)["Body"].read()

    head = filled.head_object(Bucket="data", Key="there")
    assert (
        get(Range="bytes=2-4") == b"234"
        and get(Range="bytes=-3") == b"789"
        and get(Range="bytes=8-99") == b"89"
    )
    part = filled.get_object(Bucket="data", Key="there", Range="bytes=0-0")
    assert part["ContentRange"] == "bytes 0-0/10" and part["ResponseMetadata"]["HTTPStatusCode"] == 206
    past, future = head["LastModified"] - timedelta(hours=1), head["LastModified"] + timedelta(hours=1)
    assert (
        get(IfMatch=head["ETag"])
        == get(IfModifiedSince=past)
        == get(IfUnmodifiedSince=future)
        == b"0123456789"
    )
    assert get(IfNoneMatch='"other"') == get(IfMatch=head["ETag"], IfUnmodifiedSince=past) == b"0123456789"
    for unchanged in ({"IfNoneMatch": head["ETag"]}, {"IfModifiedSince": head["LastModified"]}):
        assert refusal(lambda unchanged=unchanged: get(**unchanged)) == ("304", 304)
    assert refusal(lambda: get(IfUnmodifiedSince=past)) == ("PreconditionFailed", 412)


def test_conditional_writes(s3: Any) -> None:
    first = s3.put_object(Bucket="data", Key="guarded", Body=b"1", IfNoneMatch="*")
    s3.put_object(Bucket="data", Key="guarded", Body=b"2", IfMatch=first["ETag"])
    stale = refusal(lambda: s3.put_object(Bucket="data", Key="guarded", Body=b"3", IfMatch=first["ETag"]))
    assert stale == ("PreconditionFailed", 412)
    assert s3.get_object(Bucket="data", Key="guarded")["Body"].read() == b"2"


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "SHA1", "SHA256"])
def test_checksums_are_verified_and_kept(s3: Any, server: Any, algorithm: str) -> None:
    data = os.urandom(100_000)
    digest = {
        "CRC32": zlib.crc32(data).to_bytes(4, "big"),
        "CRC32C": google_crc32c.value(data).to_bytes(4, "big"),
        "SHA1": hashlib.sha1(data).digest(),
        "SHA256": hashlib.sha256(data).digest(),
    }[algorithm]
    value = base64.b64encode(digest).decode()
    put = s3.put_object(Bucket="data", Key="summed", Body=data, **{f"Checksum{algorithm}": value})
    assert put[f"Checksum{algorithm}"] == value
    got = s3.get_object(Bucket="data", Key="summed", ChecksumMode="ENABLED")
    assert got["Body"].read() == data and got[f"Checksum{algorithm}"] == value
    # The same behind the body, in unsigned chunks.
    name = f"x-amz-checksum-{algorithm.lower()}"
    body = b"%x\r\n%b\r\n0\r\n%b:%b\r\n\r\n" % (len(data), data, name.encode(), value.encode())
    headers = {
        "x-amz-trailer": name,
        "x-amz-decoded-content-length": str(len(data)),
        "content-encoding": "aws-chunked",
    }
    kind = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
    good = send(server, "PUT", "/data/trailed", body=body, headers=headers, sha256=kind)
    assert good.status_code == 200, good.text
    back = s3.get_object(Bucket="data", Key="trailed")
    assert back["Body"].read() == data and "ContentEncoding" not in back
    wrong = body.replace(data, data[::-1])
    assert code(send(server, "PUT", "/data/trailed", body=wrong, headers=headers, sha256=kind)) == (
        "BadDigest",
        400,
    )
    headers["x-amz-decoded-content-length"] = "5"
    short = send(server, "PUT", "/data/trailed", body=body, headers=headers, sha256=kind)
    assert code(short) == ("IncompleteBody", 400)


def test_the_signed_hash_is_that_of_the_body(server: Any, s3: Any) -> None:
    wrong = hashlib.sha256(b"other").hexdigest()
    assert code(send(server, "PUT", "/data/hash", body=b"x", sha256=wrong)) == (
        "XAmzContentSHA256Mismatch",
        400,
    )
    assert code(send(server, "PUT", "/data/hash", body=b"x", sha256="nonsense")) == ("InvalidArgument", 400)


def test_overridden_headers(s3: Any) -> None:
    s3.put_object(Bucket="data", Key="plain", Body=b"x", ContentType="text/plain")
    answer = s3.get_object(
        Bucket="data",
        Key="plain",
        ResponseContentType="text/html",
        ResponseContentDisposition="inline",
        ResponseCacheControl="no-store",
        ResponseContentLanguage="zh",
        ResponseContentEncoding="x-y",
        ResponseExpires=datetime(2030, 1, 1, tzinfo=UTC),
    )
    assert answer["ContentType"] == "text/html" and answer["ContentDisposition"] == "inline"
    assert (answer["CacheControl"], answer["ContentLanguage"]) == ("no-store", "zh")
    assert answer["ContentEncoding"] == "x-y" and answer["ExpiresString"].startswith("Tue, 01 Jan 2030")
    url = s3.generate_presigned_url(
        "get_object", {"Bucket": "data", "Key": "plain", "ResponseContentType": "a/b\r\nx-evil: 1"}
    )
    assert "x-evil" not in httpx.get(url).headers


def test_listing_in_both_versions(s3: Any) -> None:
    s3.create_bucket(Bucket="listed")
    keys = sorted(["a/1", "a/2", "b", "b/1", "b/2/3", "c d", "ü", "z\x01"], key=str.encode)
    for key in keys:
        s3.put_object(Bucket="listed", Key=key, Body=b"x")
    for operation in ("list_objects", "list_objects_v2"):
        pages = s3.get_paginator(operation).paginate(Bucket="listed", PaginationConfig={"PageSize": 3})
        assert [entry["Key"] for page in pages for entry in page.get("Contents", [])] == keys
        pages = list(
            s3.get_paginator(operation).paginate(
                Bucket="listed", Delimiter="/", PaginationConfig={"PageSize": 1}
            )
        )
        found = [
            [entry["Key"] for page in pages for entry in page.get("Contents", [])],
            [entry["Prefix"] for page in pages for entry in page.get("CommonPrefixes", [])],
        ]
        assert found == [["b", "c d", "z\x01", "ü"], ["a/", "b/"]]
        below = getattr(s3, operation)(Bucket="listed", Prefix="b/", Delimiter="/")
        assert [entry["Key"] for entry in below["Contents"]] == ["b/1"]
        assert below["CommonPrefixes"] == [{"Prefix": "b/2/"}]
        empty = getattr(s3, operation)(Bucket="listed", MaxKeys=0)
        assert "Contents" not in empty and not empty["IsTruncated"]
    assert s3.list_objects(Bucket="listed", Marker="c d")["Contents"][0]["Key"] == "z\x01"
    assert s3.list_objects_v2(Bucket="listed", StartAfter="c d")["Contents"][0]["Key"] == "z\x01"
    entry = s3.list_objects_v2(Bucket="listed", FetchOwner=True)["Contents"][0]
    assert entry["Owner"]["ID"] and entry["Size"] == 1 and entry["ETag"].startswith('"')
    assert "Owner" not in s3.list_objects_v2(Bucket="listed")["Contents"][0]


def test_copies_keep_or_replace_metadata(s3: Any) -> None:
    s3.put_object(Bucket="data", Key="orig", Body=b"abc", Metadata={"a": "1"}, ContentType="text/plain")
    s3.copy_object(Bucket="data", Key="kept", CopySource="data/orig")
    kept = s3.head_object(Bucket="data", Key="kept")
    assert kept["Metadata"] == {"a": "1"} and kept["ContentType"] == "text/plain"
    copied = s3.copy_object(
        Bucket="data", Key="orig", CopySource="data/orig", MetadataDirective="REPLACE", Metadata={"b": "2"}
    )
    changed = s3.head_object(Bucket="data", Key="orig")
    assert changed["Metadata"] == {"b": "2"} and changed["ETag"] == copied["CopyObjectResult"]["ETag"]
    assert changed["ContentType"] == "binary/octet-stream"


def test_deleting_many(s3: Any) -> None:
    for number in range(5):
        s3.put_object(Bucket="data", Key=f"gone/{number}", Body=b"")
    wanted = [{"Key": f"gone/{number}"} for number in range(6)]
    assert len(s3.delete_objects(Bucket="data", Delete={"Objects": wanted})["Deleted"]) == 6
    quiet = s3.delete_objects(
        Bucket="data", Delete={"Objects": wanted + [{"Key": "k" * 2000}], "Quiet": True}
    )
    assert "Deleted" not in quiet and [error["Code"] for error in quiet["Errors"]] == ["KeyTooLongError"]
    s3.delete_object(Bucket="data", Key="gone/0")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<",
        b"<Other/>",
        b"<Delete><Object/></Delete>",
        b'<!DOCTYPE d [<!ENTITY e "x">]><Delete><Object><Key>&e;</Key></Object></Delete>',
        '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE d [<!ENTITY e "x">]><Delete/>'.encode("utf-16"),
        b"<a>" * 50_000,
    ],
)
def test_bad_documents(s3: Any, server: Any, body: bytes) -> None:
    assert code(send(server, "POST", "/data?delete", body=body)) == ("MalformedXML", 400)
    if body:
        assert code(send(server, "PUT", "/newly", body=body)) == ("MalformedXML", 400)


@pytest.mark.parametrize("subject", ["policy", "acl", "versioning", "anything", "website"])
def test_unknown_parameters_never_mean_the_thing_itself(s3: Any, server: Any, subject: str) -> None:
    s3.put_object(Bucket="data", Key="stays", Body=b"x")
    s3.create_bucket(Bucket=f"stays-{subject}")
    for method, path in (("DELETE", f"/stays-{subject}?{subject}"), ("DELETE", f"/data/stays?{subject}")):
        if subject not in ("policy", "website") or path.startswith("/data"):
            assert send(server, method, path).status_code in (400, 404, 405, 501)
        else:
            send(server, method, path)
    assert s3.head_bucket(Bucket=f"stays-{subject}") and s3.head_object(Bucket="data", Key="stays")


def test_odd_methods(server: Any, s3: Any) -> None:
    assert code(send(server, "PATCH", "/data/x")) == ("MethodNotAllowed", 405)
    assert code(send(server, "PUT", "/")) == ("MethodNotAllowed", 405)
    assert code(send(server, "GET", "/data?encoding-type=base64")) == ("InvalidArgument", 400)
    answer = send(server, "GET", "/data/not%20there")
    assert "<Resource>/data/not there</Resource>" in answer.text and "<RequestId>" in answer.text
    assert answer.headers["x-amz-request-id"] in answer.text


def test_bearers_of_tokens_are_told_apart(server: Any, s3: Any) -> None:
    answer = httpx.get(server.url + "/data/x", headers={"Authorization": f"Bearer {server.token}"})
    assert code(answer) == ("InvalidArgument", 400)
    assert httpx.get(server.url + "/healthz").json() == {"status": "ok"}


def test_a_bucket_may_be_called_native(s3: Any) -> None:
    for name in ("native", "healthz"):
        s3.create_bucket(Bucket=name)
        s3.put_object(Bucket=name, Key="v1/buckets", Body=b"x")
        assert s3.get_object(Bucket=name, Key="v1/buckets")["Body"].read() == b"x"
        assert s3.list_objects(Bucket=name)["Contents"][0]["Key"] == "v1/buckets"


@pytest.mark.parametrize("version", ["s3v4", "s3"])
def test_presigned_urls(s3: Any, s3_as: Callable[..., Any], version: str) -> None:
    client = s3_as(signature_version=version)
    place = {"Bucket": "data", "Key": "pre signed/ü"}
    url = client.generate_presigned_url("put_object", place, ExpiresIn=60)
    assert httpx.put(url, content=b"by url").status_code == 200
    url = client.generate_presigned_url("get_object", place, ExpiresIn=60)
    assert httpx.get(url).content == b"by url"
    assert code(httpx.get(url.replace("signed/", "signed/x"))) == ("SignatureDoesNotMatch", 403)
    assert code(httpx.put(url, content=b"x")) == ("SignatureDoesNotMatch", 403)
    assert httpx.head(client.generate_presigned_url("head_object", place)).status_code == 200
    url = client.generate_presigned_url("get_object", place, ExpiresIn=1)
    time.sleep(2.1)
    assert code(httpx.get(url)) == ("AccessDenied", 403)


def test_a_presigned_url_with_headers_needs_them(s3: Any) -> None:
    url = s3.generate_presigned_url(
        "put_object", {"Bucket": "data", "Key": "typed", "ContentType": "text/x", "Metadata": {"a": "b"}}
    )
    assert code(httpx.put(url, content=b"x")) == ("SignatureDoesNotMatch", 403)
    sent = {"content-type": "text/x", "x-amz-meta-a": "b"}
    assert httpx.put(url, content=b"x", headers=sent).status_code == 200
    refused = httpx.put(url, content=b"x", headers=sent | {"x-amz-acl": "public-read"})
    assert code(refused) == ("AccessDenied", 403)


def test_virtual_hosts(s3: Any, server: Any) -> None:
    s3.put_object(Bucket="data", Key="hosted", Body=b"x")
    pair = server.keys["dev"]
    for host in (
        f"data.localhost:{server.port}",
        "data.obs.cn-north-4.myhuaweicloud.com",
        "data.s3.amazonaws.com",
    ):
        request = AWSRequest("GET", f"http://{host}/hosted", {})
        S3SigV4Auth(Credentials(pair.access_key, pair.secret_key), "s3", "us-east-1").add_auth(request)
        answer = httpx.get(server.url + "/hosted", headers=dict(request.headers) | {"host": host})
        assert answer.content == b"x", answer.text


@pytest.mark.parametrize(
    "line", ["OPTIONS * HTTP/1.1", "GET http://x/data/there HTTP/1.1", "GET // HTTP/1.1"]
)
def test_odd_targets_are_answered(filled: Any, server: Any, line: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=90) as wire:
        wire.sendall(f"{line}\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        status = int(wire.makefile("rb").readline().split()[1])
    assert 400 <= status < 500


@pytest.mark.parametrize("tamper", [False, True])
def test_a_body_in_signed_chunks(server: Any, s3: Any, tamper: bool) -> None:
    pair = server.keys["dev"]
    pieces = [os.urandom(70_000), os.urandom(5), b""]
    kind = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
    size = sum(map(len, pieces))
    sent = {
        "x-amz-content-sha256": kind,
        "x-amz-decoded-content-length": str(size),
        "content-encoding": "aws-chunked",
    }
    request = AWSRequest("PUT", server.url + "/data/chunked", sent)
    signer = S3SigV4Auth(Credentials(pair.access_key, pair.secret_key), "s3", "us-east-1")
    signer.payload = lambda request: kind  # type: ignore[method-assign]
    signer.add_auth(request)
    headers = dict(request.headers)
    previous = headers["Authorization"].rpartition("Signature=")[2]
    scope = f"{headers['X-Amz-Date'][:8]}/us-east-1/s3/aws4_request"
    key, empty, body = signing_key(pair.secret_key, scope), hashlib.sha256(b"").hexdigest(), b""
    for piece in pieces:
        text = "\n".join(
            ["AWS4-HMAC-SHA256-PAYLOAD", headers["X-Amz-Date"], scope, previous, empty]
            + [hashlib.sha256(piece).hexdigest()]
        )
        previous = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        body += b"%x;chunk-signature=%b\r\n%b\r\n" % (len(piece), previous.encode(), piece)
    if tamper:
        at = body.index(pieces[0]) + 100
        body = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        s3.delete_object(Bucket="data", Key="chunked")
    answer = httpx.put(server.url + "/data/chunked", content=body, headers=headers)
    if tamper:
        assert code(answer) == ("SignatureDoesNotMatch", 403)
        assert refusal(lambda: s3.head_object(Bucket="data", Key="chunked")) == ("404", 404)
    else:
        assert answer.status_code == 200, answer.text
        assert s3.get_object(Bucket="data", Key="chunked")["Body"].read() == b"".join(pieces)
