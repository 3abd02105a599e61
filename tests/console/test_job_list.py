"""The list of jobs."""

from __future__ import annotations

import re
from typing import Any

from trainshed.model.phase import Phase


def test_an_empty_list_teaches_the_first_command(browser: Any) -> None:
    page = browser.get("/jobs").text
    assert "No jobs yet" in page and "trainshed run --code" in page


def test_a_job_is_one_row(browser: Any, jobs: Any) -> None:
    jobs.add("digits", Phase.RUNNING, detail="training", flavor="ascend.4", nodes=2, rehearsal=True)
    page = browser.get("/jobs").text
    for text in (
        "digits",
        "phase-running",
        "Running",
        "training",
        "ascend.4 × 2",
        "admin",
        "REHEARSAL",
        "1m 30s",
    ):
        assert text in page, text


def test_the_strip_tells_what_is_free(browser: Any, jobs: Any) -> None:
    jobs.add(phase=Phase.RUNNING)
    strip = re.sub(r"<[^>]+>|\s+", " ", browser.get("/jobs").text.partition("</dl>")[0])
    strip = re.sub(r"\s+", " ", strip)
    assert (
        "Nodes ready 1 / 1" in strip and "Cores free 3 / 4" in strip and "ascend devices free 8 / 8" in strip
    )


def test_a_failed_job_says_why(browser: Any, jobs: Any) -> None:
    jobs.add(phase=Phase.FAILED, ending={"outcome": "failed", "message": "Rank 3 ended with exit code 1."})
    assert "Rank 3 ended with exit code 1." in browser.get("/jobs").text


def test_filter_by_phase(browser: Any, jobs: Any) -> None:
    jobs.add("one", Phase.COMPLETED)
    jobs.add("two", Phase.FAILED)
    page = browser.get("/jobs?phase=Failed").text
    assert ">two<" in page and ">one<" not in page
    assert "No job is in this phase: Pending" in browser.get("/jobs?phase=Pending").text
    assert browser.get("/jobs?phase=Nonsense").status_code == 400


def test_pages(browser: Any, jobs: Any) -> None:
    for _ in range(53):
        jobs.add()
    first = browser.get("/jobs").text
    assert ">job-53<" in first and ">job-4<" in first and ">job-3<" not in first
    older = re.search(r'href="(/jobs\?[^"]*before=[^"]+)" rel="next"', first)
    assert older is not None
    second = browser.get(older[1].replace("&amp;", "&")).text
    assert ">job-3<" in second and ">job-1<" in second and ">job-4<" not in second
    assert 'rel="next"' not in second
    assert browser.get("/jobs?before=nonsense").status_code == 404


def test_a_refresh_brings_only_news(browser: Any, jobs: Any) -> None:
    jobs.add("one")
    page = browser.get("/jobs").text
    part = re.search(r'hx-get="([^"]+)"', page)
    assert part is not None
    address = part[1].replace("&amp;", "&")
    assert browser.get(address).status_code == 204
    jobs.add("two")
    fresh = browser.get(address)
    assert fresh.status_code == 200 and ">two<" in fresh.text and "<html" not in fresh.text


def test_hostile_names_are_text(browser: Any, jobs: Any, hostile: tuple[str, str]) -> None:
    for text in hostile:
        ending = {"outcome": "failed", "message": text}
        jobs.add(text, Phase.FAILED, detail=text, flavor=text, ending=ending)
    page = browser.get("/jobs").text
    assert "<script>alert" not in page and "<img src=x" not in page
    assert page.count("&lt;script&gt;alert(1)") >= 4


def test_a_job_of_another_workspace_is_not_listed(make_user: Any, open_browser: Any, jobs: Any) -> None:
    row = jobs.add("in-default")
    make_user("bob", "manager", "blue")
    browser = open_browser("bob")
    assert "in-default" not in browser.get("/jobs").text
    for path in (f"/jobs/{row.id}", f"/jobs/{row.id}/log", f"/parts/jobs/{row.id}", "/jobs/in-default"):
        answer = browser.get(path)
        assert answer.status_code == 404 and "There is no such job" in answer.text
    for action in ("stop", "rerun", "delete"):
        assert browser.act(f"/jobs/{row.id}/{action}").status_code == 404
