"""Objects in parts over the native protocol."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

BASE = "/_/v1/buckets/parted"


@pytest.fixture(scope="module")
def http(server: Any) -> Iterator[httpx.Client]:
    """The developer, with a bucket."""
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.token}"}) as client:
        assert client.put(BASE).status_code == 201
        yield client


def begin(http: httpx.Client, key: str) -> dict[str, str]:
    made = http.post(f"{BASE}/uploads", params={"key": key}, headers={"x-trainshed-meta-note": "%C3%BC"})
    assert made.status_code == 201, made.text
    return {"key": key, "upload": made.json()["upload"]}


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_begin_send_list_complete(http: httpx.Client) -> None:
    place = begin(http, "a/b ü")
    pieces = [b"x" * 5000, b"y" * 300]
    etags = []
    for number, piece in enumerate(pieces, 1):
        sent = http.put(f"{BASE}/upload", params={**place, "number": number}, content=piece)
        assert sent.status_code == 201, sent.text
        etags.append(sent.json()["etag"])
    assert etags == [hashlib.md5(piece).hexdigest() for piece in pieces]
    found = http.get(f"{BASE}/uploads", params={"key": "a/b ü"}).json()["uploads"]
    assert [(one["upload"], one["metadata"]) for one in found] == [(place["upload"], {"note": "ü"})]
    assert http.get(f"{BASE}/uploads", params={"key": "a/b"}).json()["uploads"] == []
    page = http.get(f"{BASE}/upload", params={**place, "after": 1}).json()
    assert page == {"parts": [{"number": 2, "etag": etags[1], "size": 300}], "next_after": 0}
    body = json.dumps({"parts": [[1, etags[0]], [2, etags[1]]]}).encode()
    for _ in range(2):
        done = http.post(f"{BASE}/upload", params=place, content=body)
        assert done.status_code == 201 and done.json()["etag"].endswith("-2"), done.text
    got = http.get(f"{BASE}/object", params={"key": "a/b ü"})
    assert got.content == b"".join(pieces) and got.headers["x-trainshed-parts"] == "5000,300"


def test_what_is_wrong_is_told(http: httpx.Client, server: Any) -> None:
    place = begin(http, "k")
    part = {**place, "number": "1"}
    assert code(http.put(f"{BASE}/upload", params={**place, "number": "x"}, content=b"")) == (
        400,
        "invalid_input",
    )
    assert http.put(f"{BASE}/upload", params={**place, "number": "0"}, content=b"").status_code == 400
    wrong = {"content-md5": "AAAAAAAAAAAAAAAAAAAAAA=="}
    refused = http.put(f"{BASE}/upload", params=part, content=b"x", headers=wrong)
    assert code(refused) == (400, "checksum_mismatch")
    for body in (b"", b"[]", b'{"parts": 7}', b'{"parts": [["a", "b"]]}'):
        assert http.post(f"{BASE}/upload", params=place, content=body).status_code == 400
    missing = json.dumps({"parts": [[1, "0" * 32]]}).encode()
    assert http.post(f"{BASE}/upload", params=place, content=missing).status_code in (400, 404)
    assert http.patch(f"{BASE}/upload", params=place).status_code == 405
    assert http.delete(f"{BASE}/uploads", params=place).status_code == 405
    for token, status in ((server.stranger, 404), (server.viewer, 403)):
        headers = {"Authorization": f"Bearer {token}"}
        for method, path in (
            ("GET", "uploads"),
            ("POST", "uploads"),
            ("GET", "upload"),
            ("DELETE", "upload"),
        ):
            answer = http.request(method, f"{BASE}/{path}", params=place, headers=headers)
            assert answer.status_code == status, (method, path, answer.text)
        assert http.put(f"{BASE}/upload", params=part, content=b"x", headers=headers).status_code == status
    assert http.delete(f"{BASE}/upload", params=place).status_code == 204
    assert code(http.get(f"{BASE}/upload", params=place)) == (404, "no_such_upload")
