"""What surrounds every page."""

from __future__ import annotations

import asyncio
import hashlib
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import Response

import trainshed.console
from trainshed.console.app import create_console
from trainshed.console.security import CONTENT_POLICY, PageGuard
from trainshed.model.phase import Phase
from trainshed.services.platform import Platform

STATIC = Path(trainshed.console.__file__).parent / "static"


def test_every_answer_carries_the_policy(browser: Any, open_browser: Any, jobs: Any) -> None:
    row = jobs.add()
    stranger = open_browser()
    paths = (
        "/jobs",
        f"/jobs/{row.id}",
        f"/jobs/{row.id}/log?stream=x",
        "/nothing",
        "/static/console.css",
        "/static/no",
    )
    for visitor in (browser, stranger):
        for path in paths:
            headers = visitor.get(path).headers
            assert headers["content-security-policy"] == CONTENT_POLICY
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "same-origin"
            assert headers["x-frame-options"] == "DENY"
    assert "'unsafe" not in CONTENT_POLICY and "frame-ancestors 'none'" in CONTENT_POLICY
    assert browser.get("/jobs").headers["cache-control"] == "no-store"


def test_pages_hold_nothing_that_the_policy_forbids(browser: Any, open_browser: Any, jobs: Any) -> None:
    row = jobs.add(phase=Phase.RUNNING)
    pages = [browser.get(path).text for path in ("/jobs", f"/jobs/{row.id}", "/nothing")]
    pages.append(open_browser().get("/login?code=x").text)
    for page in pages:
        assert not re.findall(
            r"<script(?![^>]* src=\"/static/)[^>]*>|<style|\sstyle=|\son\w+=|javascript:|hx-on", page
        )
        assert not re.findall(r"(?:src|href|action)=\"(?:https?:)?//", page)


def test_files_with_a_fingerprint_are_kept_for_good(browser: Any) -> None:
    page = browser.get("/jobs").text
    for address in re.findall(r'(?:src|href)="(/static/[^"]+)"', page):
        answer = browser.get(address)
        assert answer.status_code == 200 and "immutable" in answer.headers["cache-control"]
    assert browser.get("/static/console.css").headers["cache-control"] == "no-cache"
    assert browser.get("/static/../app.py").status_code == 404
    assert browser.get("/static/%2e%2e/app.py").status_code == 404


def test_files_of_others_are_what_their_page_says() -> None:
    table = (STATIC / "vendor" / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| `([\w.]+)` .*`([0-9a-f]{64})` \|$", table, re.MULTILINE)
    assert {name for name, _ in rows} == {path.name for path in (STATIC / "vendor").glob("*.min.*")}
    for name, digest in rows:
        assert hashlib.sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() == digest


def test_an_unknown_page_is_told_in_the_same_layout(browser: Any, open_browser: Any) -> None:
    for visitor in (browser, open_browser()):
        answer = visitor.get("/nothing/<script>")
        assert answer.status_code == 404
        assert (
            "There is no such page." in answer.text
            and "<header" in answer.text
            and "<script>" not in answer.text
        )


def test_a_huge_form_is_refused(open_browser: Any) -> None:
    answer = open_browser().send_form("/login", {"name": "x" * 200_000})
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "path", ["/jobs/\x00", "/jobs/%00", "/jobs/%ff%fe", "/jobs/" + "a" * 3000, "/jobs/%F0%9F%90%B8"]
)
def test_odd_addresses_are_not_found(browser: Any, path: str) -> None:
    assert browser.get(path.replace("\x00", "%00")).status_code == 404


def test_a_form_that_cannot_be_read(open_browser: Any) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=x", "Origin": "http://console.test"}
    answer = open_browser().post("/login", content=b"nonsense", headers=headers)
    assert answer.status_code == 400 and "The form cannot be read." in answer.text


def test_a_link_of_a_page_stays_on_the_site(open_browser: Any) -> None:
    page = open_browser().get("http://console.test//evil.test/x").text
    assert not re.findall(r'(?:href|action|src)="(?:https?:)?//', page)


def test_a_fault_of_ours_is_a_page_with_an_id(
    platform: Platform, browser: Any, jobs: Any, caplog: pytest.LogCaptureFixture
) -> None:
    row = jobs.add(spec={"inputs": "not a mapping, which no submit lets through"})
    answer = browser.get(f"/jobs/{row.id}")
    assert answer.status_code == 500
    fault_id = re.search(r"<code>([0-9a-f]{8})</code>", answer.text)
    assert fault_id is not None and fault_id[1] in caplog.text
    assert "Traceback" not in answer.text and "not a mapping" not in answer.text


def test_the_console_needs_nothing_but_the_platform(platform: Platform) -> None:
    assert callable(create_console(platform))


@pytest.mark.parametrize(
    ("public_url", "is_sent"),
    [
        ("", False),
        ("http://shed.test", False),
        ("https://shed.test:7480", False),
        ("https://shed.test", True),
        ("https://shed.test:443", True),
    ],
)
def test_browsers_are_bound_to_tls_only_where_that_harms_no_other_port(
    public_url: str, is_sent: bool
) -> None:
    async def page(scope: Any, receive: Any, send: Any) -> None:
        await Response("hello")(scope, receive, send)

    async def on_fault(request: Any, fault_id: str) -> Response:
        return Response("fault", 500)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(PageGuard(page, on_fault, public_url))
        async with httpx.AsyncClient(transport=transport, base_url="http://console.test") as client:
            return await client.get("/")

    assert ("strict-transport-security" in asyncio.run(ask()).headers) == is_sent
