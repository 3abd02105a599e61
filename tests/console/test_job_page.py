"""The page of one job."""

from __future__ import annotations

import re
from typing import Any

import pytest

from trainshed.db.attempts import AttemptRow, attempts_of, change_attempt, insert_attempt
from trainshed.db.engine import begin
from trainshed.model.attempt import NodeReport
from trainshed.model.launch_plan import to_json
from trainshed.model.phase import Phase

FAILURE = {
    "outcome": "failed",
    "cause": "user",
    "code": "exit",
    "message": "Rank 3 ended with exit code 1.",
    "hint": "Add 'torch' to requirements.txt.",
    "rank": 3,
    "line": "ModuleNotFoundError: No module named 'torch'",
}


def test_a_failed_job_tells_rank_line_cause_and_next_step(browser: Any, jobs: Any) -> None:
    row = jobs.add(phase=Phase.FAILED, ending=FAILURE)
    page = browser.get(f"/jobs/{row.id}").text
    for text in (
        "Why it failed",
        "Rank 3 ended with exit code 1.",
        "No module named &#39;torch&#39;",
        "the job's own code",
        "Add &#39;torch&#39; to requirements.txt.",
    ):
        assert text in page, text
    assert 'data-default-stream="rank-3"' in page


def test_a_failure_before_the_first_rank_opens_the_platforms_log(browser: Any, jobs: Any) -> None:
    row = jobs.add(phase=Phase.FAILED, ending=FAILURE | {"rank": -1, "cause": "platform"})
    page = browser.get(f"/jobs/{row.id}").text
    assert 'data-default-stream="platform"' in page and "the platform, not the job" in page


def test_the_attempts_of_a_job_are_listed_with_how_each_ended(browser: Any, jobs: Any) -> None:
    row = jobs.add(phase=Phase.RUNNING, attempt=2, detail="training")
    taken = {"outcome": "failed", "cause": "node", "code": "preempted", "message": "<b>taken</b>"}
    with begin(jobs.platform.engine) as connection:
        first = AttemptRow(row.id, 1, "slurm", [{"node": "n7"}], "ended", 1.0, 2.0, 62.0, taken)
        insert_attempt(connection, first)
    page = browser.get(f"/jobs/{row.id}").text
    assert 'id="attempts"' in page and "?attempt=1#log-card" in page and "n7" in page
    assert "<code>preempted</code> &lt;b&gt;taken" in page
    assert "metrics?limit=" in page and "&amp;attempt=" not in page
    earlier = browser.get(f"/jobs/{row.id}?attempt=1").text
    assert earlier.count("&amp;attempt=1") == 2, "the curves and the machine's are of that attempt"
    once = jobs.add(phase=Phase.RUNNING)
    assert 'id="attempts"' not in browser.get(f"/jobs/{once.id}").text


def test_an_idle_job_says_so_and_since_when(browser: Any, jobs: Any, clock: Any) -> None:
    row = jobs.add(phase=Phase.RUNNING, detail="training, idle")
    report = NodeReport(row.id, 1, 0, 1, "training", launched=True, idle_since=clock() - 900)
    with begin(jobs.platform.engine) as connection:
        attempt = attempts_of(connection, row.id)[0]
        change_attempt(connection, attempt, reports=[to_json(report)])
    page = browser.get(f"/jobs/{row.id}").text
    assert "It is idle" in page and "neither a device nor the processor for 15 min" in page
    assert "gives the devices to others" in page


def test_a_waiting_job_tells_why(browser: Any, jobs: Any) -> None:
    row = jobs.add(phase=Phase.PENDING, flavor="cpu.1", nodes=1000, detail="queued")
    page = browser.get(f"/jobs/{row.id}").text
    assert "Why it waits" in page and "No machine of this platform can ever give" in page


def test_the_story_inputs_outputs_and_specification(browser: Any, jobs: Any) -> None:
    spec = {
        "boot": "train.py",
        "inputs": {"data_url": "obs://data/x/"},
        "outputs": {"train_url": "obs://out/y/"},
    }
    row = jobs.add(phase=Phase.RUNNING, detail="training", spec=spec)
    jobs.tell(row, "Node 0: training.", source="runner")
    jobs.tell(row, "The disk is nearly full.", level="warning")
    page = browser.get(f"/jobs/{row.id}").text
    assert "Node 0: training." in page and 'class="level-warning"' in page
    assert "trainshed obs ls obs://data/x/" in page and "trainshed obs cp -r obs://out/y/ ." in page
    assert "inputs:\n  data_url: obs://data/x/" in page


def test_a_name_leads_to_the_id(browser: Any, jobs: Any) -> None:
    row = jobs.add("digits")
    answer = browser.get("/jobs/digits?stream=rank-1")
    assert (answer.status_code, answer.headers["location"]) == (307, f"/jobs/{row.id}?stream=rank-1")


def test_a_refresh_brings_only_news_and_stops_at_the_end(browser: Any, jobs: Any) -> None:
    row = jobs.add(phase=Phase.RUNNING, detail="training")
    page = browser.get(f"/jobs/{row.id}").text
    part = re.search(r'hx-get="([^"]+)"', page)
    assert part is not None
    assert browser.get(part[1]).status_code == 204
    jobs.tell(row, "Something new.")
    fresh = browser.get(part[1])
    assert fresh.status_code == 200 and "Something new." in fresh.text and 'hx-swap-oob="true"' in fresh.text
    ended = jobs.add(phase=Phase.COMPLETED)
    assert "hx-get" not in browser.get(f"/jobs/{ended.id}").text


@pytest.mark.parametrize("field", ["name", "detail", "flavor", "spec", "ending", "event", "stop_reason"])
def test_hostile_values_are_text(browser: Any, jobs: Any, hostile: tuple[str, str], field: str) -> None:
    for text in hostile:
        values: dict[str, Any] = {
            "name": {"name": text},
            "detail": {"detail": text},
            "flavor": {"flavor": text},
            "spec": {"spec": {"boot": text, "inputs": {text: text}, "outputs": {text: text}}},
            "ending": {
                "phase": Phase.FAILED,
                "ending": FAILURE | {"message": text, "hint": text, "line": text * 2},
            },
            "event": {},
            "stop_reason": {"phase": Phase.TERMINATING, "stop_requested": True, "stop_reason": text},
        }[field]
        row = jobs.add(**({"phase": Phase.RUNNING} | values))
        if field == "event":
            jobs.tell(row, text, level=text, source=text)
        page = browser.get(f"/jobs/{row.id}")
        assert page.status_code == 200
        assert "<script>alert" not in page.text and "<img src=x" not in page.text
        # The page does show it: as text.
        assert "alert(1)" in page.text
        hostile_query = browser.get(f"/jobs/{row.id}", params={"stream": text, "attempt": text, "done": text})
        assert "<script>alert" not in hostile_query.text and "<img src=x" not in hostile_query.text


def test_stop_needs_the_sessions_form_and_asks_the_control_loop(browser: Any, jobs: Any) -> None:
    row = jobs.add(phase=Phase.RUNNING)
    assert browser.send_form(f"/jobs/{row.id}/stop", {}).status_code == 403
    looked = browser.get(f"/jobs/{row.id}/stop")
    assert looked.status_code == 405 and "cannot be used that way" in looked.text
    assert not jobs.row(row).stop_requested
    answer = browser.act(f"/jobs/{row.id}/stop")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{row.id}?done=stop")
    assert jobs.row(row).stop_requested and "admin" in jobs.row(row).stop_reason
    assert "The job was asked to stop." in browser.get(answer.headers["location"]).text


def test_delete_is_for_ended_jobs(browser: Any, jobs: Any) -> None:
    running, ended = jobs.add(phase=Phase.RUNNING), jobs.add(phase=Phase.COMPLETED)
    refused = browser.act(f"/jobs/{running.id}/delete")
    assert refused.status_code == 409 and "only an ended job can be deleted" in refused.text
    assert browser.act(f"/jobs/{ended.id}/delete").headers["location"] == "/jobs?done=delete"
    assert browser.get(f"/jobs/{ended.id}").status_code == 404


def test_a_viewer_sees_no_buttons_and_may_not_use_them(make_user: Any, open_browser: Any, jobs: Any) -> None:
    make_user("eve", "viewer")
    running, ended = jobs.add(phase=Phase.RUNNING), jobs.add(phase=Phase.FAILED, ending=FAILURE)
    browser = open_browser("eve")
    for row in (running, ended):
        assert "data-open=" not in browser.get(f"/jobs/{row.id}").text
        for action in ("stop", "rerun", "delete"):
            assert browser.act(f"/jobs/{row.id}/{action}").status_code == 403
    assert not jobs.row(running).stop_requested


def test_buttons_fit_the_phase(browser: Any, jobs: Any) -> None:
    running, ended = jobs.add(phase=Phase.RUNNING), jobs.add(phase=Phase.COMPLETED)
    assert set(re.findall(r'data-open="confirm-(\w+)"', browser.get(f"/jobs/{running.id}").text)) == {
        "stop",
        "rerun",
    }
    assert set(re.findall(r'data-open="confirm-(\w+)"', browser.get(f"/jobs/{ended.id}").text)) == {
        "rerun",
        "delete",
    }


def test_the_download_is_the_log_byte_for_byte(browser: Any, jobs: Any) -> None:
    row = jobs.add("digits")
    data = b"<script>alert(1)</script>\r\x1b[31mred\x00\xff\n" + bytes(range(256)) * 9000
    jobs.write_log(row, data)
    answer = browser.get(f"/jobs/{row.id}/log?stream=rank-0")
    assert answer.content == data
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="digits-rank-0.log"'
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "stream", ["rank-99", "../../etc/passwd", "rank-0/../x", "<script>", "node-9/platform"]
)
def test_a_log_that_does_not_exist_is_an_error_page(browser: Any, jobs: Any, stream: str) -> None:
    row = jobs.add()
    answer = browser.get(f"/jobs/{row.id}/log", params={"stream": stream})
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html") and "<script>" not in answer.text


def test_a_log_of_an_attempt_that_was_not_is_an_error_page(browser: Any, jobs: Any) -> None:
    row = jobs.add()
    assert browser.get(f"/jobs/{row.id}/log?stream=rank-0&attempt=7").status_code == 404


def test_an_unknown_failure_shows_its_place_and_the_end_of_the_log(browser: Any, jobs: Any) -> None:
    ending = FAILURE | {"rank": 0, "reason": "unknown", "place": "/job/code/train.py:7", "node": 1}
    row = jobs.add(phase=Phase.FAILED, ending=ending, nodes=2)
    page = browser.get(f"/jobs/{row.id}").text
    assert "/job/code/train.py:7" in page and "does not know this failure" in page and ", node 1" in page


def test_tensorboard_is_offered_once_a_job_has_started(browser: Any, jobs: Any) -> None:
    waiting = jobs.add(phase=Phase.PENDING)
    assert 'id="tensorboard"' not in browser.get(f"/jobs/{waiting.id}").text
    ended = jobs.add(phase=Phase.COMPLETED, attempt=1)
    assert f'href="/jobs/{ended.id}/tensorboard"' in browser.get(f"/jobs/{ended.id}").text
    answer = browser.get(f"/jobs/{waiting.id}/tensorboard")
    assert answer.status_code == 409 and "has not started yet" in answer.text
