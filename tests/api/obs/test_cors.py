"""CORS: rules, preflights, and the headers of answers to pages of other origins."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError
from obs import CorsRule as ObsRule
from obs import ObsClient, Options

from trainshed.api.obs.cors import CorsRule, find_rule, parse_cors
from trainshed.api.obs.errors import S3Error

PAGE = "https://lab.example"
RULES = [
    {
        "ID": "lab",
        "AllowedOrigins": [PAGE, "http://*.example:8080"],
        "AllowedMethods": ["GET", "PUT"],
        "AllowedHeaders": ["x-amz-*", "Content-Type"],
        "ExposeHeaders": ["ETag", "x-amz-meta-note"],
        "MaxAgeSeconds": 600,
    },
    {"AllowedOrigins": ["*"], "AllowedMethods": ["GET"]},
]


@pytest.fixture
def open_bucket(s3: Any) -> Iterator[Any]:
    """The bucket `data` with rules and an object `page`."""
    s3.put_object(Bucket="data", Key="page", Body=b"content")
    s3.put_bucket_cors(Bucket="data", CORSConfiguration={"CORSRules": RULES})
    yield s3
    s3.delete_bucket_cors(Bucket="data")


def refusal(call: Callable[[], Any]) -> tuple[str, int]:
    with pytest.raises(ClientError) as error:
        call()
    answer = error.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


def preflight(url: str, origin: str = PAGE, method: str = "PUT", headers: str = "") -> httpx.Response:
    sent = {
        "Origin": origin,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": headers,
    }
    return httpx.request("OPTIONS", url, headers={name: value for name, value in sent.items() if value})


def test_rules_are_kept_and_removed(open_bucket: Any, s3_as: Callable[..., Any]) -> None:
    assert open_bucket.get_bucket_cors(Bucket="data")["CORSRules"] == RULES
    for user in ("stranger", "viewer"):
        other = s3_as(user)
        assert refusal(lambda other=other: other.get_bucket_cors(Bucket="data"))[1] == 403
        assert refusal(lambda other=other: other.delete_bucket_cors(Bucket="data"))[1] == 403
    open_bucket.delete_bucket_cors(Bucket="data")
    gone = refusal(lambda: open_bucket.get_bucket_cors(Bucket="data"))
    assert gone == ("NoSuchCORSConfiguration", 404)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"AllowedMethods": ["PATCH"]}, "InvalidRequest"),
        ({"AllowedOrigins": ["http://*.*"]}, "InvalidRequest"),
        ({"AllowedHeaders": ["*-*"]}, "InvalidRequest"),
        ({"ExposeHeaders": ["x-*"]}, "InvalidRequest"),
        ({"ExposeHeaders": ["a\r\nSet-Cookie: b"]}, "MalformedXML"),
        ({"AllowedOrigins": []}, "MalformedXML"),
        ({"MaxAgeSeconds": -1}, "MalformedXML"),
    ],
)
def test_rules_that_cannot_be_followed_are_refused(s3: Any, change: dict[str, Any], code: str) -> None:
    rules = {"CORSRules": [{**RULES[1], **change}]}
    assert refusal(lambda: s3.put_bucket_cors(Bucket="data", CORSConfiguration=rules)) == (code, 400)
    many = {"CORSRules": RULES * 51}
    assert refusal(lambda: s3.put_bucket_cors(Bucket="data", CORSConfiguration=many))[0] == "MalformedXML"


def test_a_preflight_is_answered_by_the_rules(open_bucket: Any, server: Any) -> None:
    url = f"{server.url}/data/new object"
    allowed = preflight(url, headers="X-Amz-Date, content-type")
    assert allowed.status_code == 200 and not allowed.content
    assert allowed.headers["access-control-allow-origin"] == PAGE
    assert allowed.headers["access-control-allow-methods"] == "GET, PUT"
    assert allowed.headers["access-control-allow-headers"] == "x-amz-date, content-type"
    assert allowed.headers["access-control-expose-headers"] == "ETag, x-amz-meta-note"
    assert allowed.headers["access-control-max-age"] == "600"
    assert allowed.headers["access-control-allow-credentials"] == "true"
    assert "Origin" in allowed.headers["vary"]
    anyone = preflight(url, "https://evil.example", "GET")
    assert anyone.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in anyone.headers
    # A presigned URL is asked about before it is used: with another method than was signed.
    signed = open_bucket.generate_presigned_url("put_object", Params={"Bucket": "data", "Key": "new object"})
    assert preflight(signed).status_code == 200


@pytest.mark.parametrize(
    ("place", "asked", "code", "status"),
    [
        ("data/k", {"origin": "https://evil.example"}, "AccessForbidden", 403),
        ("data/k", {"origin": "http://a.example"}, "AccessForbidden", 403),
        ("data/k", {"method": "DELETE"}, "AccessForbidden", 403),
        ("data/k", {"headers": "x-other"}, "AccessForbidden", 403),
        ("data", {"method": "POST"}, "AccessForbidden", 403),
        ("data/k", {"method": "PATCH"}, "BadRequest", 400),
        ("data/k", {"method": ""}, "BadRequest", 400),
        ("data/k", {"origin": ""}, "BadRequest", 400),
        ("not-there/k", {}, "NoSuchBucket", 404),
        (".code/k", {}, "NoSuchBucket", 404),
    ],
)
def test_other_preflights_are_refused(
    open_bucket: Any, server: Any, place: str, asked: dict[str, str], code: str, status: int
) -> None:
    answer = preflight(f"{server.url}/{place}", **asked)
    assert answer.status_code == status and f"<Code>{code}</Code>" in answer.text
    assert "access-control-allow-origin" not in answer.headers


def test_without_rules_nothing_is_allowed(s3: Any, server: Any) -> None:
    answer = preflight(f"{server.url}/data/k")
    assert answer.status_code == 403 and "CORS is not enabled" in answer.text
    assert (
        "access-control-allow-origin" not in httpx.get(f"{server.url}/data", headers={"Origin": PAGE}).headers
    )


def test_answers_carry_the_headers(open_bucket: Any, server: Any) -> None:
    signed = open_bucket.generate_presigned_url("get_object", Params={"Bucket": "data", "Key": "page"})
    answer = httpx.get(signed, headers={"Origin": "http://a.example:8080"})
    assert answer.content == b"content"
    assert answer.headers["access-control-allow-origin"] == "http://a.example:8080"
    assert answer.headers["access-control-expose-headers"] == "ETag, x-amz-meta-note"
    assert "access-control-allow-origin" not in httpx.get(signed).headers
    # A page may read why it was refused, too.
    refused = httpx.put(f"{server.url}/data/page", content=b"x", headers={"Origin": PAGE})
    assert refused.status_code == 403 and refused.headers["access-control-allow-origin"] == PAGE
    missing = httpx.get(f"{server.url}/not-there/k", headers={"Origin": PAGE})
    assert missing.status_code == 404 and "access-control-allow-origin" not in missing.headers
    forbidden = httpx.put(f"{server.url}/data/page", content=b"x", headers={"Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in forbidden.headers


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_obs_sdk(s3: Any, server: Any, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo
    # `data.localhost` is this machine, also where the system's resolver does not know that.
    monkeypatch.setattr(socket, "getaddrinfo", lambda _host, *more, **also: real("127.0.0.1", *more, **also))
    pair = server.keys["dev"]
    client = ObsClient(pair.access_key, pair.secret_key, server=f"http://{host}:{server.port}")
    try:
        rule = ObsRule("1", ["GET", "PUT"], [PAGE], ["x-obs-*"], 100, ["ETag"])
        assert client.setBucketCors("data", [rule]).status == 200
        (kept,) = client.getBucketCors("data").body
        assert (kept.id, kept.allowedOrigin, kept.maxAgeSecond) == ("1", [PAGE], 100)
        asked = Options(PAGE, ["PUT"], ["x-obs-date"])
        answer = client.optionsBucket("data", asked)
        assert answer.status == 200 and answer.body.accessContorlAllowOrigin == PAGE
        assert client.optionsObject("data", "k", Options(PAGE, ["DELETE"])).status == 403
        assert client.deleteBucketCors("data").status == 204
        assert client.getBucketCors("data").errorCode == "NoSuchCORSConfiguration"
    finally:
        client.close()


def test_the_first_rule_that_fits_counts() -> None:
    rules = [CorsRule(("a*c",), ("GET",), exposed=("one",)), CorsRule(("*",), ("GET",), headers=("*",))]
    assert find_rule(rules, "ac", "GET") is rules[0] and find_rule(rules, "abc", "GET") is rules[0]
    assert find_rule(rules, "a", "GET") is rules[1] and find_rule(rules, "abc", "GET", ["x"]) is rules[1]
    assert find_rule(rules, "abc", "PUT") is None
    # The two ends of a pattern do not overlap.
    assert not CorsRule(("aba*ba",), ("GET",)).allows("aba", "GET")


@pytest.mark.parametrize(
    "body", [b"", b"<CORSConfiguration/>", b"<!DOCTYPE x []><CORSConfiguration/>", b"<a/>"]
)
def test_documents_that_are_none(body: bytes) -> None:
    with pytest.raises(S3Error) as error:
        parse_cors(body)
    assert error.value.code == "MalformedXML"
