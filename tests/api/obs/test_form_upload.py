"""POST of objects by forms: boto3's and the OBS SDK's, policies, and forms that mean harm."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from obs import ObsClient

BOUNDARY = "form-boundary"


def moment(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def sign(pair: Any, document: Any, *, obs: bool = False) -> dict[str, str]:
    """A policy, signed as AWS V2 or OBS do."""
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    policy = base64.b64encode(text)
    signature = base64.b64encode(hmac.digest(pair.secret_key.encode(), policy, "sha1")).decode()
    key = "AccessKeyId" if obs else "AWSAccessKeyId"
    return {key: pair.access_key, "policy": policy.decode(), "signature": signature}


# Made when tests are collected, and used when their turn comes.
DAY = 86_400


def policy(*conditions: Any, expires: float = DAY) -> dict[str, Any]:
    return {"expiration": moment(expires), "conditions": [{"bucket": "data"}, *conditions]}


def post(
    server: Any, fields: dict[str, str], content: bytes = b"content", bucket: str = "data"
) -> httpx.Response:
    return httpx.post(
        f"{server.url}/{bucket}", data=fields, files={"file": ("dir\\näme.txt", content, "text/html")}
    )


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.text.partition("<Code>")[2].partition("</Code>")[0]


@pytest.mark.parametrize("version", ["s3v4", "s3"])
def test_boto3(server: Any, s3: Any, s3_as: Callable[..., Any], version: str) -> None:
    client = s3_as(signature_version=version, s3={"addressing_style": "path"})
    extra = {
        "acl": "public-read",
        "Content-Type": "text/plain",
        "x-amz-meta-note": "ü",
        "success_action_status": "201",
        "tagging": "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>",
    }
    form = client.generate_presigned_post(
        "data",
        "up/${filename}",
        Fields=dict(extra),
        Conditions=[*({name: value} for name, value in extra.items()), ["content-length-range", 1, 1 << 24]],
    )
    content = bytes(range(256)) * (20 << 10) + b"\r\n--" + BOUNDARY.encode() + b"\r\n"
    answer = httpx.post(form["url"], data=form["fields"], files={"file": ("C:\\x\\näme.bin", content)})
    assert answer.status_code == 201, answer.text
    assert "<PostResponse" in answer.text and "<Key>up/näme.bin</Key>" in answer.text
    got = s3.get_object(Bucket="data", Key="up/näme.bin")
    assert got["Body"].read() == content and got["ContentType"] == "text/plain" and got["TagCount"] == 1
    assert answer.headers["etag"] == got["ETag"]
    # The ACL made it public, and the answer tells where.
    assert httpx.get(answer.headers["location"]).content == content
    assert code(httpx.post(form["url"], data=form["fields"], files={"file": b""})) == (400, "EntityTooSmall")
    large = httpx.post(form["url"], data=form["fields"], files={"file": ("large", bytes((1 << 24) + 1))})
    assert code(large) == (400, "EntityTooLarge")
    assert "up/large" not in [entry["Key"] for entry in s3.list_objects_v2(Bucket="data")["Contents"]]


@pytest.mark.parametrize("signature", ["obs", "v2", "v4"])
def test_the_obs_sdk(server: Any, s3: Any, signature: str) -> None:
    pair = server.keys["dev"]
    client = ObsClient(
        pair.access_key, pair.secret_key, server=server.url, signature=signature, path_style=True
    )
    prefix = "x-obs-" if signature == "obs" else "x-amz-"
    fields = {"key": f"sdk-{signature}", "content-type": "text/plain", f"{prefix}meta-note": "1"}
    made = client.createPostSignature("data", fields["key"], 60, dict(fields))
    client.close()
    fields |= {"policy": made["policy"]}
    if signature == "v4":
        fields |= {f"x-amz-{name}": made[name] for name in ("algorithm", "credential", "date", "signature")}
    else:
        key = "AccessKeyId" if signature == "obs" else "AWSAccessKeyId"
        fields |= {key: pair.access_key, "signature": made["signature"]}
    answer = post(server, fields)
    assert answer.status_code == 204, answer.text
    assert s3.head_object(Bucket="data", Key=f"sdk-{signature}")["Metadata"] == {"note": "1"}
    assert code(post(server, {**fields, f"{prefix}meta-note": "2"})) == (403, "AccessDenied")


def test_the_token_of_obs(server: Any, s3: Any) -> None:
    pair = server.keys["dev"]
    made = sign(pair, policy({"key": "token"}), obs=True)
    token = f"{pair.access_key}:{made['signature']}:{made['policy']}"
    assert post(server, {"key": "token", "token": token}).status_code == 204
    assert code(post(server, {"key": "token", "token": token[1:]})) == (403, "InvalidAccessKeyId")
    assert code(post(server, {"key": "token", "token": "a:b"})) == (400, "InvalidArgument")


def test_where_the_browser_goes_next(server: Any, s3: Any) -> None:
    proof = sign(
        server.keys["dev"],
        policy(
            ["starts-with", "$key", "go/"],
            ["starts-with", "$success_action_redirect", ""],
            ["starts-with", "$success_action_status", ""],
        ),
    )
    page = "https://lab.example/done?x=1"
    answer = post(server, {**proof, "key": "go/a b", "success_action_redirect": page})
    assert answer.status_code == 303
    target = urlsplit(answer.headers["location"])
    assert target.netloc == "lab.example" and parse_qs(target.query)["key"] == ["go/a b"]
    assert parse_qs(target.query)["x"] == ["1"] and parse_qs(target.query)["etag"] == [answer.headers["etag"]]
    for hostile in ("javascript:alert(1)", "https://a/\r\nSet-Cookie: b", "https://[", "/relative"):
        answer = post(server, {**proof, "key": "go/b", "success_action_redirect": hostile})
        assert answer.status_code == 204 and "set-cookie" not in answer.headers
    for status, expected in (("200", 200), ("204", 204), ("302", 204)):
        assert post(server, {**proof, "key": "go/b", "success_action_status": status}).status_code == expected


KEY = {"key": "k"}
FORMS: list[tuple[str, Any, dict[str, str], tuple[int, str]]] = [
    ("expired", policy(KEY, expires=-1), {}, (403, "AccessDenied")),
    ("other key", policy({"key": "other"}), {}, (403, "AccessDenied")),
    ("other prefix", policy(["starts-with", "$key", "user/"]), {}, (403, "AccessDenied")),
    ("extra field", policy(KEY), {"x-amz-meta-a": "b"}, (403, "AccessDenied")),
    ("ignored field", policy(KEY), {"x-ignore-a": "b"}, (204, "")),
    ("missing field", policy(KEY, {"acl": "private"}), {}, (403, "AccessDenied")),
    ("upper-case operator's field", policy(["eq", "$Key", "k"]), {}, (204, "")),
    ("types", policy(KEY, ["starts-with", "$Content-Type", "image/"]), {"Content-Type": "image/a,text/b"}, (403, "AccessDenied")),
    ("no bucket", {"expiration": moment(DAY), "conditions": [KEY]}, {}, (403, "AccessDenied")),
    ("other bucket", {"expiration": moment(DAY), "conditions": [KEY, {"bucket": "x"}]}, {}, (403, "AccessDenied")),
    ("no expiration", {"conditions": [KEY]}, {}, (400, "InvalidPolicyDocument")),
    ("odd expiration", {"expiration": "soon", "conditions": []}, {}, (400, "InvalidPolicyDocument")),
    ("no conditions", {"expiration": moment(DAY)}, {}, (400, "InvalidPolicyDocument")),
    ("odd operator", policy(["ends-with", "$key", "k"]), {}, (400, "InvalidPolicyDocument")),
    ("odd condition", policy("key"), {}, (400, "InvalidPolicyDocument")),
    ("odd range", policy(KEY, ["content-length-range", -1, 5]), {}, (400, "InvalidPolicyDocument")),
    ("two ranges", policy(KEY, ["content-length-range", 0, 3], ["content-length-range", 0, 99]), {}, (400, "EntityTooLarge")),
    ("no JSON", b"{", {}, (400, "InvalidPolicyDocument")),
    ("deep JSON", b"[" * 9000, {}, (400, "InvalidPolicyDocument")),
    ("empty key", policy(["starts-with", "$key", ""]), {"key": ""}, (400, "InvalidArgument")),
    ("bad key", policy(["starts-with", "$key", ""]), {"key": "k" * 1025}, (400, "KeyTooLongError")),
    ("bad acl", policy(KEY, ["starts-with", "$acl", ""]), {"acl": "mine"}, (400, "InvalidArgument")),
    ("bad MD5", policy(KEY, ["starts-with", "$content-md5", ""]), {"Content-MD5": base64.b64encode(bytes(16)).decode()}, (400, "BadDigest")),
    ("wrong signature", policy(KEY), {"signature": "AAAA"}, (403, "SignatureDoesNotMatch")),
    ("unknown key", policy(KEY), {"AWSAccessKeyId": "nobody"}, (403, "InvalidAccessKeyId")),
    ("no signature", policy(KEY), {"signature": ""}, (400, "InvalidArgument")),
    ("half of V4", policy(KEY), {"x-amz-algorithm": "AWS4-HMAC-SHA256"}, (400, "InvalidArgument")),
    ("named bucket", policy(KEY), {"bucket": "other"}, (400, "InvalidArgument")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("document", "more", "expected"), [row[1:] for row in FORMS], ids=[row[0] for row in FORMS]
)
def test_what_a_policy_allows(
    server: Any, s3: Any, document: Any, more: dict[str, str], expected: tuple[int, str]
) -> None:
    fields = {**sign(server.keys["dev"], document), "key": "k", **more}
    assert code(post(server, fields)) == expected
    found = s3.list_objects_v2(Bucket="data", Prefix="k").get("KeyCount")
    assert found == (1 if expected[0] == 204 else 0)
    s3.delete_object(Bucket="data", Key="k")


def test_whose_the_form_is(server: Any, s3: Any) -> None:
    for user in ("stranger", "viewer"):
        answer = post(server, {**sign(server.keys[user], policy(KEY)), "key": "k"})
        assert code(answer) == (403, "AccessDenied")
    assert code(post(server, {"key": "k"})) == (403, "AccessDenied")
    assert code(post(server, {"key": "k"}, bucket="not-there")) == (404, "NoSuchBucket")
    assert code(post(server, {"key": "k"}, bucket=".code")) == (404, "NoSuchBucket")
    s3.create_bucket(Bucket="letterbox", ACL="public-read-write")
    assert post(server, {"key": "from/${filename}"}, bucket="letterbox").status_code == 204
    assert s3.list_objects_v2(Bucket="letterbox")["Contents"][0]["Key"] == "from/näme.txt"


def part(name: str, value: bytes, extra: str = "") -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{extra}\r\n\r\n'
    return head.encode() + value + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()
FILE = part("file", b"content", '; filename="a"')
RAW: list[tuple[str, bytes, str, tuple[int, str]]] = [
    ("field behind the file", FILE + part("key", b"late") + END, "", (400, "InvalidArgument")),
    ("button behind the file", part("key", b"k") + FILE + part("submit", b"go") + END, "", (204, "")),
    ("two files", part("key", b"k") + FILE + FILE + END, "", (400, "IncorrectNumberOfFilesInPostRequest")),
    ("no file", part("key", b"k") + END, "", (400, "IncorrectNumberOfFilesInPostRequest")),
    ("same field twice", part("key", b"k") + part("Key", b"l") + FILE + END, "", (400, "InvalidArgument")),
    ("no end", part("key", b"k") + FILE, "", (400, "MalformedPOSTRequest")),
    ("nothing", b"", "", (400, "MalformedPOSTRequest")),
    ("no form", b"hello", "", (400, "MalformedPOSTRequest")),
    ("huge field", part("key", b"k" * (1 << 20)) + FILE + END, "", (400, "MaxPostPreDataLengthExceededError")),
    ("many fields", b"".join(part(f"x-{n}", b"") for n in range(5000)) + END, "", (400, "MaxPostPreDataLengthExceededError")),
    ("huge part header", part("a" * 100_000, b"") + END, "", (400, "MalformedPOSTRequest")),
    ("much behind the file", part("key", b"k") + FILE + part("x", bytes(1 << 20)) + END, "", (400, "MalformedPOSTRequest")),
    ("no UTF-8", part("key", b"\xff") + FILE + END, "", (400, "MalformedPOSTRequest")),
    ("no name", b"--form-boundary\r\nA: b\r\n\r\n\r\n" + END, "", (400, "MalformedPOSTRequest")),
    ("no boundary", part("key", b"k") + FILE + END, "multipart/form-data", (400, "MalformedPOSTRequest")),
    ("long boundary", END, "multipart/form-data; boundary=" + "b" * 5000, (400, "MalformedPOSTRequest")),
    ("other type", b"key=k&file=x", "application/x-www-form-urlencoded", (412, "PreconditionFailed")),
    ("no type", b"", "x", (412, "PreconditionFailed")),
]  # fmt: skip


@pytest.mark.parametrize(("body", "kind", "expected"), [row[1:] for row in RAW], ids=[row[0] for row in RAW])
def test_forms_that_are_none(server: Any, s3: Any, body: bytes, kind: str, expected: tuple[int, str]) -> None:
    s3.create_bucket(Bucket="anybody", ACL="public-read-write")
    kind = kind or f"multipart/form-data; boundary={BOUNDARY}"
    answer = httpx.post(f"{server.url}/anybody", content=body, headers={"Content-Type": kind})
    assert code(answer) == expected
    assert s3.list_objects_v2(Bucket="anybody").get("KeyCount") == (1 if expected[0] == 204 else 0)
    s3.delete_object(Bucket="anybody", Key="k")
    s3.delete_bucket(Bucket="anybody")


def test_a_form_that_comes_byte_by_byte(server: Any, s3: Any) -> None:
    proof = sign(server.keys["dev"], policy({"key": "slow"}))
    body = b"".join(part(name, value.encode()) for name, value in {**proof, "key": "slow"}.items())
    body += part("file", b"\r\n--form-bound\r\n-\r\n", '; filename="x"') + END

    def pieces() -> Any:
        for index in range(0, len(body), 7):
            yield body[index : index + 7]
            if index % 700 == 0:
                time.sleep(0.01)

    kind = {"Content-Type": f'multipart/form-data; boundary="{BOUNDARY}"'}
    assert httpx.post(f"{server.url}/data", content=pieces(), headers=kind).status_code == 204
    assert s3.get_object(Bucket="data", Key="slow")["Body"].read() == b"\r\n--form-bound\r\n-\r\n"
