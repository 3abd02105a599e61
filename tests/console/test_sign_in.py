"""Signing in and out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainshed.api.authentication import SESSION_COOKIE as API_COOKIE
from trainshed.console.visitor import SESSION_COOKIE, local_path
from trainshed.services.identity import Caller
from trainshed.services.platform import Platform
from trainshed.services.sessions import SESSION_SECONDS, create_login_link

PASSWORD = "correct horse battery"


def test_the_api_accepts_the_consoles_cookie() -> None:
    assert SESSION_COOKIE == API_COOKIE


def test_a_stranger_is_asked_to_sign_in_and_gets_no_session(open_browser: Any) -> None:
    browser = open_browser()
    answer = browser.get("/jobs")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    page = browser.get("/login")
    assert page.status_code == 200
    assert "set-cookie" not in page.headers
    assert "trainshed login-link" in page.text


def test_a_login_link_works_once_and_a_preview_does_not_use_it_up(
    platform: Platform, admin: Caller, open_browser: Any
) -> None:
    code = create_login_link(platform, admin)
    browser = open_browser()
    for _ in range(2):
        page = browser.get(f"/login?code={code}")
        assert page.status_code == 200 and f'value="{code}"' in page.text
    answer = browser.send_form("/login", {"code": code})
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=lax" in cookie and "path=/" in cookie
    assert browser.get("/jobs").status_code == 200
    again = open_browser().send_form("/login", {"code": code})
    assert again.status_code == 401
    assert "was used already" in again.text and "set-cookie" not in again.headers


def test_name_and_password(make_user: Callable[..., None], open_browser: Any) -> None:
    make_user("ann", "developer", password=PASSWORD)
    browser = open_browser()
    wrong = browser.send_form("/login", {"name": "ann", "password": "wrong horse battery"})
    assert wrong.status_code == 401
    assert "The name or the password is wrong." in wrong.text and 'value="ann"' in wrong.text
    unknown = browser.send_form("/login", {"name": "<script>x", "password": PASSWORD})
    assert unknown.status_code == 401 and "<script>x" not in unknown.text
    right = browser.send_form("/login", {"name": "ann", "password": PASSWORD, "next": "/jobs?phase=Failed"})
    assert (right.status_code, right.headers["location"]) == (303, "/jobs?phase=Failed")
    assert ">ann<" in browser.get("/jobs").text


@pytest.mark.parametrize("origin", ["", "null", "http://evil.test", "http://console.test.evil.test"])
def test_another_sites_sign_in_form_is_refused(
    platform: Platform, admin: Caller, open_browser: Any, origin: str
) -> None:
    browser = open_browser()
    answer = browser.send_form("/login", {"code": create_login_link(platform, admin)}, origin)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "path",
    ["//evil.test", "/\\evil.test", "https://evil.test", "/a\\..\\b", "/api/v1/jobs", "/login", "x\n", ""],
)
def test_nobody_is_led_elsewhere_after_signing_in(path: str) -> None:
    assert local_path(path) == "/jobs"


def test_guessing_is_slowed_down_per_address(clock: Any, platform: Platform, open_browser: Any) -> None:
    browser = open_browser()
    answers = [browser.send_form("/login", {"code": f"guess-{n}"}) for n in range(31)]
    assert all(answer.status_code == 401 for answer in answers)
    assert "too old" in answers[29].text and "too many failed attempts" in answers[30].text
    clock.now += 301
    assert "too old" in browser.send_form("/login", {"code": "guess"}).text


def test_signing_out_needs_the_sessions_own_form(browser: Any) -> None:
    assert browser.send_form("/logout", {}).status_code == 403
    assert browser.send_form("/logout", {"csrf": "made up"}).status_code == 403
    assert browser.get("/jobs").status_code == 200
    kept = browser.cookies[SESSION_COOKIE]
    answer = browser.act("/logout")
    assert answer.headers["location"] == "/login?done=sign-out"
    browser.cookies.set(SESSION_COOKIE, kept)
    assert browser.get("/jobs").status_code == 303


def test_an_expired_session_leads_back_to_where_it_was(clock: Any, browser: Any, jobs: Any) -> None:
    row = jobs.add()
    clock.now += SESSION_SECONDS + 1
    answer = browser.get(f"/jobs/{row.id}?stream=rank-1")
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/login?expired=1&next=/jobs/{row.id}%3Fstream%3Drank-1"
    assert 'trainshed_session=""' in answer.headers["set-cookie"]
    assert "Your session has ended" in browser.get(answer.headers["location"]).text


def test_a_refresh_without_a_session_moves_the_whole_page(clock: Any, browser: Any, jobs: Any) -> None:
    row = jobs.add()
    clock.now += SESSION_SECONDS + 1
    headers = {"HX-Request": "true", "HX-Current-URL": f"http://console.test/jobs/{row.id}"}
    answer = browser.get(f"/parts/jobs/{row.id}", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["hx-redirect"] == f"/login?expired=1&next=/jobs/{row.id}"


def test_another_workspace_can_be_chosen(
    make_user: Callable[..., None], open_browser: Any, platform: Platform, admin: Caller, jobs: Any
) -> None:
    jobs.add("in-default")
    make_user("ann", "developer", "red")
    browser = open_browser("admin")
    page = browser.get("/jobs").text
    red = page.split('">red</option>')[0].rpartition('value="')[2]
    assert "in-default" in page
    assert browser.act("/workspace", workspace=red).status_code == 303
    assert "in-default" not in browser.get("/jobs").text
    assert open_browser("ann").act("/workspace", workspace=admin.workspace_id).status_code == 404
