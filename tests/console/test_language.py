"""English and Chinese."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from trainshed.console.language import catalog_of, choose_language
from trainshed.console.words import CODES, DETAILS, PHASES
from trainshed.model.phase import Detail, Phase

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "translations.py"


@pytest.mark.parametrize(
    ("asked", "remembered", "accepted", "chosen"),
    [
        ("", "", "", "en"),
        ("", "", "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("", "", "fr, en;q=0.5, zh;q=0.7", "zh"),
        ("", "", "de-DE", "en"),
        ("", "", "zh;q=0, en", "en"),
        ("", "", "zh;q=much, en", "en"),
        ("", "en", "zh-CN", "en"),
        ("zh", "en", "en", "zh"),
        ("xx", "", "zh", "zh"),
    ],
)
def test_choice(asked: str, remembered: str, accepted: str, chosen: str) -> None:
    assert choose_language(asked, remembered, accepted) == chosen


def test_every_message_is_translated_and_compiled(translations: Any) -> None:
    catalog = catalog_of("zh")
    messages = [message for message in translations.collect() if message.id]
    assert len(messages) > 100
    # Words that are the same in both languages.
    same = {"API", "rank"}
    missing = [m.id for m in messages if m.id not in same and catalog.gettext(m.id) == m.id]
    assert not missing
    for message in messages:
        holes = re.findall(r"%\(\w+\)s", str(message.id))
        assert sorted(holes) == sorted(re.findall(r"%\(\w+\)s", catalog.gettext(message.id)))


def test_the_catalogs_hold_nothing_else(translations: Any) -> None:
    written = translations.po_path("zh").read_bytes()
    assert written == translations.as_po(translations.read_catalog("zh")), "run scripts/translations.py"


def test_no_text_stands_in_a_template_without_a_mark() -> None:
    """Words between tags must go through gettext: else Chinese readers meet English."""
    for path in (SCRIPT.parents[1] / "src/trainshed/console/templates").glob("*.html"):
        text = re.sub(
            r"{#.*?#}|{%.*?%}|{{.*?}}|<code>.*?</code>", "", path.read_text("utf-8"), flags=re.DOTALL
        )
        text = re.sub(r"<[^>]*>", "\n", text)
        words = set(re.findall(r"[A-Za-z]{3,}", text)) - {"Trainshed", "doctype", "html"}
        assert not words, f"{path.name}: {words}"


def test_every_phase_and_detail_has_a_word() -> None:
    assert set(PHASES) == {phase.value for phase in Phase}
    assert set(DETAILS) == {detail.value for detail in Detail if detail.value}
    assert "bad_password" in CODES


def test_a_page_in_chinese_and_the_choice_is_kept(browser: Any, jobs: Any) -> None:
    row = jobs.add("digits")
    assert "Completed" in browser.get(f"/jobs/{row.id}").text
    page = browser.get(f"/jobs/{row.id}?lang=zh")
    assert 'lang="zh-CN"' in page.text and "已完成" in page.text and ">Completed<" not in page.text
    assert "已完成" in browser.get("/jobs").text
    assert "已完成" not in browser.get("/jobs?lang=en").text
    browser.cookies.delete("trainshed_lang")
    assert "已完成" in browser.get("/jobs", headers={"Accept-Language": "zh-TW,zh;q=0.9"}).text


def test_what_the_platform_says_about_a_job_is_chinese_too(browser: Any, jobs: Any) -> None:
    message = "Rank 0 ended with exit code 1: the module 'nope' is not installed."
    ending = {
        "outcome": "failed",
        "cause": "user",
        "code": "exit",
        "message": message,
        "hint": "Rerun the job.",
    }
    row = jobs.add("broken", phase=Phase.FAILED, ending=ending)
    for path in (f"/jobs/{row.id}?lang=zh", "/jobs?lang=zh"):
        page = browser.get(path).text
        assert "没有安装模块“nope”" in page and "is not installed" not in page
    assert "请重新运行作业。" in browser.get(f"/jobs/{row.id}?lang=zh").text
    assert "is not installed" in browser.get(f"/jobs/{row.id}?lang=en").text


def test_the_end_of_a_log_is_told_in_the_visitors_language(browser: Any) -> None:
    reason = {"text": "job Terminated: Stopped by ann."}
    assert browser.get("/parts/told", params=reason).text == reason["text"]
    answer = browser.get("/parts/told", params=reason, headers={"Accept-Language": "zh"})
    assert answer.text == "作业已停止：由 ann 停止。"
    assert answer.headers["content-type"].startswith("text/plain")
    hostile = {"text": "<script>alert(1)</script>"}
    assert browser.get("/parts/told", params=hostile).headers["x-content-type-options"] == "nosniff"
