"""The native protocol of the object store, against a real process."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from trainshed.api.obs.exchange import UnsatisfiableRange, parse_range


@pytest.fixture(scope="module")
def http(server: Any) -> Any:
    with server.http() as client:
        client.put("/buckets/data").raise_for_status()
        yield client


def put(http: httpx.Client, key: str, data: bytes, **headers: str) -> httpx.Response:
    return http.put("/buckets/data/object", params={"key": key}, content=data, headers=headers)


def get(http: httpx.Client, key: str, **headers: str) -> httpx.Response:
    return http.get("/buckets/data/object", params={"key": key}, headers=headers)


def blob_count(folder: Path) -> int:
    return len([path for path in folder.rglob("*") if path.is_file()])


def incoming(server: Any) -> list[str]:
    return [
        path.name
        for path in (server.home.store / "incoming").rglob("*")
        if path.is_file() and path.suffix != ".lock"
    ]


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1, 5_000_001])
def test_bytes_come_back(http: httpx.Client, size: int) -> None:
    data = os.urandom(size)
    answer = put(http, f"size/{size}", data, **{"content-type": "x/y", "x-trainshed-meta-note": "%E5%80%BC"})
    assert answer.status_code == 201
    assert answer.json()["etag"] == hashlib.md5(data).hexdigest() and answer.json()["metadata"] == {
        "note": "值"
    }
    back = get(http, f"size/{size}")
    assert back.content == data and back.headers["content-type"] == "x/y"
    assert (
        back.headers["x-trainshed-meta-note"] == "%E5%80%BC"
        and back.headers["x-content-type-options"] == "nosniff"
    )
    head = http.head("/buckets/data/object", params={"key": f"size/{size}"})
    assert head.headers["content-length"] == str(size) and head.headers["etag"] == back.headers["etag"]


@pytest.mark.parametrize(
    "key", ["../x", "/abs", "a//b", "..", "a b+c&d=e?f#g%20", "文件/é", "x" * 1024, "a/./b/"]
)
def test_any_key_goes_through(http: httpx.Client, key: str) -> None:
    assert put(http, key, key.encode()).status_code == 201
    assert get(http, key).content == key.encode()
    assert http.delete("/buckets/data/object", params={"key": key}).json() == {"deleted": 1}
    assert get(http, key).status_code == 404


def test_ranges(http: httpx.Client) -> None:
    data = os.urandom(3_000_000)
    put(http, "ranged", data)
    for header, part in (
        ("bytes=0-9", data[:10]),
        ("bytes=100-", data[100:]),
        ("bytes=-5", data[-5:]),
        ("bytes=2999999-9999999", data[-1:]),
    ):
        answer = get(http, "ranged", range=header)
        assert answer.status_code == 206 and answer.content == part
        assert answer.headers["content-range"].endswith("/3000000")
    assert get(http, "ranged", range="lines=1-2").content == data
    assert get(http, "ranged", range="bytes=3000000-").status_code == 416
    assert get(http, "ranged", **{"if-match": '"0"'}).status_code == 409


@pytest.mark.parametrize(
    ("header", "size", "expected"),
    [
        ("", 10, None),
        ("bytes=0-0", 10, (0, 1)),
        ("bytes=-20", 10, (0, 10)),
        ("bytes=5-3", 10, "error"),
        ("bytes=-0", 10, "error"),
        ("bytes=0-", 0, "error"),
        ("bytes=a-b", 10, None),
        ("bytes=0-1,3-4", 10, None),
        ("bytes=-", 10, None),
        ("bytes=١-٢", 10, None),
    ],
)
def test_range_headers(header: str, size: int, expected: Any) -> None:
    if expected == "error":
        with pytest.raises(UnsatisfiableRange):
            parse_range(header, size)
    else:
        assert parse_range(header, size) == expected


def test_checksums_are_verified(http: httpx.Client, blobs: Path) -> None:
    md5 = base64.b64encode(hashlib.md5(b"right").digest()).decode()
    sha256 = hashlib.sha256(b"right").hexdigest()
    assert put(http, "sum", b"right", **{"content-md5": md5, "x-sha256": sha256}).status_code == 201
    before = blob_count(blobs)
    for wrong in ({"content-md5": md5}, {"x-sha256": sha256}):
        answer = put(http, "sum", b"wrong", **wrong)
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "checksum_mismatch"
    assert put(http, "sum", b"x", **{"content-md5": "not base64"}).status_code == 400
    assert get(http, "sum").content == b"right" and blob_count(blobs) == before


@pytest.mark.parametrize("framing", ["Content-Length: 6000000", "Transfer-Encoding: chunked"])
def test_an_upload_that_breaks_off_leaves_nothing(
    server: Any, http: httpx.Client, blobs: Path, framing: str
) -> None:
    before = blob_count(blobs)
    place = urlsplit(server.url)
    with socket.create_connection((place.hostname, place.port)) as wire:
        head = f"PUT /_/v1/buckets/data/object?key=broken HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n"
        body = b"x" * 5_000_000
        wire.sendall(f"{head}{framing}\r\n\r\n".encode())
        wire.sendall(body if "Length" in framing else b"%x\r\n%b\r\n" % (len(body), body))
        deadline = time.monotonic() + 90
        while not incoming(server) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert incoming(server)
    deadline = time.monotonic() + 90
    while incoming(server) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert incoming(server) == [] and blob_count(blobs) == before
    assert get(http, "broken").status_code == 404


def test_listing(http: httpx.Client) -> None:
    for number in range(12):
        put(http, f"list/{number % 3}/{number:02}", b"")
    put(http, "list/top", b"x")
    page = http.get("/buckets/data/objects", params={"prefix": "list/", "delimiter": "/"}).json()
    assert page["folders"] == ["list/0/", "list/1/", "list/2/"]
    assert [entry["key"] for entry in page["objects"]] == ["list/top"] and page["next_after"] == ""
    keys, after = [], ""
    while True:
        page = http.get(
            "/buckets/data/objects", params={"prefix": "list/", "after": after, "limit": 5}
        ).json()
        keys += [entry["key"] for entry in page["objects"]]
        after = page["next_after"]
        if not after:
            break
    assert len(keys) == 13 and keys == sorted(keys)
    for wrong in ("0", "1001", "x", "-1", "²"):
        assert http.get("/buckets/data/objects", params={"limit": wrong}).status_code == 400


def test_copies_and_removals(http: httpx.Client) -> None:
    put(http, "from/a", b"1")
    put(http, "from/b", b"2")
    query = {"key": "one", "from_bucket": "data", "from_key": "from/a"}
    assert http.post("/buckets/data/object", params=query).json()["size"] == 1
    query = {"prefix": "to/", "from_bucket": "data", "from_prefix": "from/"}
    assert http.post("/buckets/data/objects", params=query).json() == {"copied": 2}
    assert get(http, "to/b").content == b"2"
    assert http.delete("/buckets/data/objects").status_code == 400
    assert http.delete("/buckets/data/objects", params={"prefix": "to/"}).json() == {"deleted": 2}
    assert http.delete("/buckets/data/object", params={"key": "to/b"}).json() == {"deleted": 0}


def test_buckets(http: httpx.Client) -> None:
    assert http.put("/buckets/second").status_code == 201
    assert {bucket["name"] for bucket in http.get("/buckets").json()["buckets"]} >= {"data", "second"}
    assert http.put("/buckets/second").status_code == 409
    assert http.put("/buckets/UPPER").status_code == 400
    http.put("/buckets/second/object", params={"key": "k"}, content=b"")
    assert http.delete("/buckets/second").status_code == 409
    http.delete("/buckets/second/object", params={"key": "k"})
    assert http.delete("/buckets/second").status_code in (204, 403)


def every_request(bucket: str) -> list[tuple[str, str, dict[str, str]]]:
    path = f"/buckets/{bucket}"
    return [
        ("GET", path, {}),
        ("DELETE", path, {}),
        ("GET", path + "/objects", {}),
        ("DELETE", path + "/objects", {"prefix": ""}),
        ("GET", path + "/object", {"key": "k"}),
        ("HEAD", path + "/object", {"key": "k"}),
        ("PUT", path + "/object", {"key": "k"}),
        ("DELETE", path + "/object", {"key": "k"}),
        ("POST", path + "/object", {"key": "k", "from_bucket": "data", "from_key": "k"}),
        ("POST", path + "/objects", {"prefix": "k", "from_bucket": "data"}),
    ]


@pytest.mark.parametrize("token", ["x", "nonsense", "tsh_" + "x" * 43])
def test_nothing_without_a_token(server: Any, http: httpx.Client, token: str) -> None:
    with server.http(token) as client:
        for method, path, query in [
            ("GET", "/buckets", {}),
            ("PUT", "/buckets/new-one", {}),
            *every_request("data"),
        ]:
            answer = client.request(method, path, params=query)
            assert answer.status_code == 401, (method, path)
            assert answer.headers["www-authenticate"] == "Bearer"


def test_a_foreign_bucket_looks_like_a_missing_one(server: Any, http: httpx.Client) -> None:
    put(http, "k", b"secret")
    with server.http(server.stranger) as client:
        client.put("/buckets/strange").raise_for_status()
        for method, path, query in every_request("data"):
            foreign = client.request(method, path, params=query)
            missing = client.request(method, path.replace("data", "none"), params=query)
            assert foreign.status_code == missing.status_code == 404, (method, path)
            assert foreign.text.replace("data", "none") == missing.text.replace("data", "none")
        # Nor can its objects be copied out of it.
        for path, query in (
            ("object", {"key": "k", "from_bucket": "data", "from_key": "k"}),
            ("objects", {"prefix": "", "from_bucket": "data", "from_prefix": ""}),
        ):
            assert client.post(f"/buckets/strange/{path}", params=query).status_code == 404
        assert [bucket["name"] for bucket in client.get("/buckets").json()["buckets"]] == ["strange"]
    assert get(http, "k").content == b"secret"


@pytest.mark.parametrize("name", [".jobs", ".code", "%2ejobs", ".."])
def test_the_platforms_own_buckets_are_not_there(http: httpx.Client, name: str) -> None:
    for method, path, query in every_request(name):
        assert http.request(method, path, params=query).status_code in (404, 405), (method, path)
    assert http.put(f"/buckets/{name}").status_code in (400, 404, 405)


def test_a_viewer_reads_and_does_not_write(server: Any, http: httpx.Client) -> None:
    put(http, "seen", b"x")
    with server.http(server.viewer) as client:
        assert get(client, "seen").content == b"x"
        assert put(client, "seen", b"y").status_code == 403
        assert client.delete("/buckets/data/objects", params={"prefix": ""}).status_code == 403
    assert get(http, "seen").content == b"x"


def test_errors_have_the_one_form(server: Any, http: httpx.Client) -> None:
    for answer in (
        get(http, "not-there"),
        http.get("/nowhere"),
        http.patch("/buckets/data"),
        http.put("/buckets/data/object"),
        http.get("/buckets/data/object", params={"key": "a\0b"}),
        http.get("/buckets/data/object?key=%ff"),
        httpx.get(server.url + "/_/where"),
    ):
        assert answer.status_code in (400, 404, 405)
        assert set(answer.json()["error"]) == {"code", "message", "hint", "where"}
    assert httpx.get(server.url + "/healthz").json() == {"status": "ok"}


def test_a_refused_upload_still_hears_why(http: httpx.Client) -> None:
    answer = http.put("/buckets/no-such/object", params={"key": "k"}, content=b"x" * 6_000_000)
    assert answer.status_code == 404 and answer.json()["error"]["code"] == "no_such_bucket"


def test_a_reader_that_hangs_up_does_not_hold_the_server(server: Any, http: httpx.Client) -> None:
    put(http, "large", os.urandom(20_000_000))
    place = urlsplit(server.url)
    for _ in range(5):
        with socket.create_connection((place.hostname, place.port)) as wire:
            wire.sendall(
                f"GET /_/v1/buckets/data/object?key=large HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode()
            )
            assert wire.recv(1000).startswith(b"HTTP/1.1 200")
    assert len(get(http, "large").content) == 20_000_000
    assert json.loads(http.get("/buckets").text)["buckets"]
