"""Errors, authentication, the OpenAPI document and health, over a real server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
GOLDEN = Path(__file__).with_name("golden") / "paths.json"


def error_of(response: httpx.Response) -> dict[str, Any]:
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "hint", "where"}
    error: dict[str, Any] = body["error"]
    return error


def paths_of(document: dict[str, Any]) -> list[str]:
    return sorted(
        f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods
    )


def test_openapi_paths_are_the_golden_ones(api: Any) -> None:
    document = api.http().get("/api/v1/openapi.json").json()
    assert paths_of(document) == json.loads(GOLDEN.read_text())


def test_openapi_describes_everything(api: Any) -> None:
    document = api.http().get("/api/v1/openapi.json").json()
    assert "JobSpec" in document["components"]["schemas"]
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    for operation in operations:
        assert operation["summary"] and operation["description"] and operation["tags"], operation[
            "operationId"
        ]


def test_documentation_mentions_every_path(api: Any) -> None:
    text = (REPOSITORY / "docs" / "api.md").read_text()
    missing = [path for path in json.loads(GOLDEN.read_text()) if f"`{path}`" not in text]
    assert missing == []


def test_documentation_mentions_no_path_that_is_not_there() -> None:
    text = (REPOSITORY / "docs" / "api.md").read_text()
    written = set(re.findall(r"`((?:GET|POST|PUT|PATCH|DELETE) /[^` ?]*)`", text))
    assert written - set(json.loads(GOLDEN.read_text())) == set()


def test_health_needs_no_credential(api: Any) -> None:
    response = httpx.get(f"{api.url}/healthz")
    assert response.status_code == 200
    assert response.json()["status"] == "ok"


def test_every_other_path_needs_a_credential(api: Any) -> None:
    open_paths = {"GET /healthz", "POST /api/v1/login"}
    for line in set(json.loads(GOLDEN.read_text())) - open_paths:
        method, path = line.split(" ")
        response = httpx.request(method, api.url + re.sub(r"\{[^}]*\}", "x", path))
        assert response.status_code == 401, line
        assert error_of(response)["code"] == "no_credential"
        assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "header", ["Bearer tsh_wrong", "Bearer", "Basic YTpi", "nonsense", "Bearer " + "x" * 5000]
)
def test_wrong_credential(api: Any, header: str) -> None:
    response = httpx.get(f"{api.url}/api/v1/jobs", headers={"Authorization": header})
    assert response.status_code == 401
    error_of(response)


def test_unknown_path(api: Any) -> None:
    response = api.http().get("/api/v1/nothing/here")
    assert response.status_code == 404
    assert error_of(response)["code"] == "unknown_path"


def test_wrong_method(api: Any) -> None:
    response = api.http().put("/api/v1/jobs")
    assert response.status_code == 405
    assert error_of(response)["code"] == "method_not_allowed"


def test_broken_json(api: Any) -> None:
    response = api.http().post(
        "/api/v1/jobs", content=b'{"name": ', headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 400
    assert error_of(response)["code"] == "invalid_json"


@pytest.mark.parametrize("body", [b"\xff\xfe", b"[" * 100_000, b'"text"', b"[]", b"null", b"3"])
def test_hostile_bodies(api: Any, body: bytes) -> None:
    response = api.http().post("/api/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400, response.text
    error_of(response)


def test_body_that_is_too_large(api: Any) -> None:
    response = api.http().post(
        "/api/v1/jobs", content=b" " * (9 << 20), headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 413
    assert response.headers["connection"] == "close"
    error_of(response)


def test_query_that_cannot_be_used_names_its_field(api: Any) -> None:
    response = api.http().get("/api/v1/jobs", params={"limit": "many"})
    assert response.status_code == 400
    assert error_of(response)["where"] == "query: limit"


def test_unknown_field_of_a_request(api: Any) -> None:
    response = api.http().post("/api/v1/tokens", json={"name": "x", "scope": ["*"]})
    assert response.status_code == 400
    assert error_of(response)["code"] == "unknown_field"
    assert error_of(response)["where"] == "scope"


def test_prometheus_metrics(api: Any) -> None:
    api.http().get("/api/v1/jobs")
    text = api.http().get("/metrics").text
    assert 'trainshed_jobs{phase="Running"}' in text
    assert re.search(
        r'trainshed_http_requests_total\{method="GET",route="/api/v1/jobs",status="200"\} \d+', text
    )
    assert 'trainshed_devices{kind="ascend"} 8' in text
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) .+|[a-z_]+(\{([a-z]+="[^"]*",?)*\})? [0-9.e+-]+', line), line


def test_prometheus_metrics_need_a_credential_even_from_this_machine(api: Any) -> None:
    assert httpx.get(f"{api.url}/metrics").status_code == 401


def test_session_cookie(api: Any) -> None:
    from trainshed.services.identity import authenticate_token
    from trainshed.services.sessions import create_login_link, sign_in_with_link

    caller = authenticate_token(api.platform, api.token)
    session = sign_in_with_link(api.platform, create_login_link(api.platform, caller))
    with httpx.Client(base_url=api.url, cookies={"trainshed_session": session.cookie}) as browser:
        assert browser.get("/api/v1/whoami").json()["user_name"] == "admin"
        # A change must come from a page of our own.
        assert browser.post("/api/v1/tokens", json={"name": "x"}).status_code == 403
        evil = browser.post("/api/v1/tokens", json={"name": "x"}, headers={"Origin": "http://evil.example"})
        assert error_of(evil)["code"] == "cross_site"
        own = browser.post("/api/v1/tokens", json={"name": "x"}, headers={"Origin": api.url})
        assert own.status_code == 201


def test_unexpected_fault_is_logged_with_an_id(api: Any) -> None:
    from sqlalchemy import text

    from trainshed.db.engine import begin

    with begin(api.platform.engine) as connection:
        connection.execute(text("ALTER TABLE nodes RENAME TO nodes_away"))
    try:
        response = api.http().get("/api/v1/nodes")
    finally:
        with begin(api.platform.engine) as connection:
            connection.execute(text("ALTER TABLE nodes_away RENAME TO nodes"))
    assert response.status_code in (500, 503)
    error = error_of(response)
    assert "Traceback" not in response.text
    if response.status_code == 500:
        assert error["where"] in (api.home.path / "api.log").read_text()
