"""Jobs over the real API, through the client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from trainshed.client import Client
from trainshed.client.results import Job
from trainshed.model.errors import Conflict, InvalidInput, NotAuthenticated, NotFound, Unavailable
from trainshed.model.phase import Phase


def test_submit_uploads_the_code_once(client: Client, code_folder: Path, api: Any) -> None:
    uploads: list[bool] = []
    fields = {"code": str(code_folder), "boot": "train.py", "parameters": {"lr": "1e-3", "epochs": 3}}
    first = client.submit(fields, on_scan=lambda _, new: uploads.append(new))
    second = client.submit(fields, on_scan=lambda _, new: uploads.append(new))
    assert uploads == [True, False]
    assert first.phase == "Creating"
    assert first.id != second.id and first.name != second.name
    assert list(first.spec["parameters"].items()) == [("lr", "1e-3"), ("epochs", 3)]
    row = api.job_row(first.id)
    keys = [info.key for info in api.platform.store.walk(row.code_bucket, row.code_prefix)]
    assert keys == [row.code_prefix + "train.py"]


def test_job_is_found_by_name_id_and_prefix(client: Client, submit: Callable[..., str]) -> None:
    job_id = submit(name="find-me")
    for ref in ("find-me", job_id, job_id[:8]):
        assert client.get(ref).id == job_id
    with pytest.raises(NotFound):
        client.get("no-such-job")
    with pytest.raises(NotFound):
        client.get("a/b/../c?x=1#y")


def test_name_that_is_taken(submit: Callable[..., str]) -> None:
    submit(name="taken")
    with pytest.raises(Conflict) as fault:
        submit(name="taken")
    assert fault.value.code == "name_taken"


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"flavour": "cpu.1"}, "flavour"),
        ({"flavor": "gpu.9000"}, "flavor"),
        ({"engine": "pytorhc"}, "engine"),
        ({"inputs": {"data": "obs://missing-bucket/x/"}}, "inputs.data"),
        ({"nodes": 0}, "nodes"),
        ({"time_limit": "soon"}, "time_limit"),
        ({"boot": "trian.py"}, "boot"),
    ],
)
def test_faults_name_their_field(submit: Callable[..., str], fields: dict[str, Any], where: str) -> None:
    with pytest.raises((InvalidInput, NotFound)) as fault:
        submit(**fields)
    assert fault.value.where == where


def test_raw_request_with_an_unknown_field_is_helped(api: Any) -> None:
    response = api.http().post("/api/v1/jobs", json={"comand": "true"})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == "unknown_field"
    assert "command" in error["hint"]


def test_dry_run_stores_nothing(client: Client, code_folder: Path) -> None:
    before = len(client.jobs(limit=1000))
    answer = client.dry_run(
        {
            "code": str(code_folder),
            "boot": "train.py",
            "flavor": "ascend.4",
            "nodes": 2,
            "secrets": {"KEY": "do-not-show-this"},
        }
    )
    assert len(answer["launch"]) == 2
    assert "do-not-show-this" not in str(answer)
    assert len(client.jobs(limit=1000)) == before


def test_list_pages_and_filters(client: Client, submit: Callable[..., str]) -> None:
    made = [submit(command="true", code="", boot="") for _ in range(3)]
    first = client.jobs(limit=2)
    assert [job.id for job in first] == made[:0:-1]
    rest = client.jobs(limit=2, before=first[-1].id)
    assert rest[0].id == made[0]
    assert all(job.phase == "Creating" for job in client.jobs("creating"))
    with pytest.raises(InvalidInput):
        client.jobs("Sleeping")


def test_stop_explain_events_attempts(client: Client, submit: Callable[..., str], api: Any) -> None:
    job_id = submit()
    api.begin_attempt(job_id)
    assert client.stop(job_id, "enough").stop_requested
    assert api.job_row(job_id).stop_reason == "enough"
    assert client.stop(job_id).stop_requested
    assert any("enough" in event.message for event in client.events(job_id))
    last = client.events(job_id)[-1]
    assert client.events(job_id, after=last.id) == []
    assert client.attempts(job_id)[0].state == "running"
    assert client.explain(job_id).summary


def test_delete_only_after_the_end(client: Client, submit: Callable[..., str], api: Any) -> None:
    job_id = submit()
    with pytest.raises(Conflict):
        client.delete(job_id)
    api.begin_attempt(job_id)
    api.end_attempt(job_id)
    client.delete(job_id)
    with pytest.raises(NotFound):
        client.get(job_id)


def test_rerun(client: Client, submit: Callable[..., str], api: Any) -> None:
    job_id = submit(name="again", parameters={"x": 1})
    api.begin_attempt(job_id)
    api.end_attempt(job_id)
    new = client.rerun("again")
    assert new.id != job_id
    assert new.spec["parameters"] == {"x": 1}
    assert api.job_row(new.id).code_prefix == api.job_row(job_id).code_prefix


def test_watch_tells_every_phase_and_ends(client: Client, submit: Callable[..., str], api: Any) -> None:
    job_id = submit()
    seen: list[Job] = []
    reader = threading.Thread(target=lambda: [seen.append(job) for job in client.watch(job_id)])
    reader.start()
    # One step after the other: a watcher is told what is, and may miss a phase that was over at once.
    _until(lambda: any(job.phase == "Creating" for job in seen))
    api.begin_attempt(job_id)
    _until(lambda: any(job.phase == "Running" for job in seen))
    api.end_attempt(job_id, phase=Phase.FAILED)
    reader.join(90)
    assert not reader.is_alive()
    phases = [job.phase for job in seen]
    assert phases[0] == "Creating"
    assert "Running" in phases
    assert phases[-1] == "Failed"
    assert seen[-1].ending is not None


def test_wait(client: Client, submit: Callable[..., str], api: Any) -> None:
    job_id = submit()
    api.begin_attempt(job_id)
    timer = threading.Timer(0.3, api.end_attempt, [job_id])
    timer.start()
    assert client.wait(job_id).succeeded
    timer.join()
    assert client.wait(job_id, timeout=120).succeeded


def test_wait_gives_up_at_its_deadline(client: Client, submit: Callable[..., str]) -> None:
    with pytest.raises(Unavailable, match="is still Creating after 1 s") as caught:
        client.wait(submit(), timeout=1)
    assert caught.value.code == "timeout"


def test_wait_asks_once_and_is_answered_at_the_end(submit: Callable[..., str], api: Any) -> None:
    job_id = submit()
    api.begin_attempt(job_id)
    answers: list[Any] = []

    def ask() -> None:
        with httpx.Client(base_url=api.url, timeout=120, headers=api.http().headers) as http:
            answers.append(http.get(f"/api/v1/jobs/{job_id}", params={"wait": 50}).json())

    asking = threading.Thread(target=ask)
    asking.start()
    # What changes on the way is no end.
    api.change(job_id, detail="uploading")
    api.end_attempt(job_id)
    asking.join(60)
    assert [answer["phase"] for answer in answers] == ["Completed"]


def test_wait_of_an_answer_is_bounded(submit: Callable[..., str], api: Any) -> None:
    path = f"/api/v1/jobs/{submit()}"
    assert api.http().get(path, params={"wait": 0.1}).json()["phase"] == "Creating"
    assert api.http().get(path, params={"wait": 3600}).status_code == 400
    assert api.http().get(path, params={"wait": -1}).status_code == 400


def test_wait_ends_for_a_token_that_is_revoked(client: Client, submit: Callable[..., str], api: Any) -> None:
    job_id = submit()
    api.begin_attempt(job_id)
    token = client.create_token("watcher")
    answers: list[int] = []

    def ask() -> None:
        headers = {"Authorization": f"Bearer {token.token}"}
        with httpx.Client(base_url=api.url, timeout=120, headers=headers) as http:
            answers.append(http.get(f"/api/v1/jobs/{job_id}", params={"wait": 50}).status_code)

    asking = threading.Thread(target=ask)
    asking.start()
    client.revoke_token(token.id)
    api.end_attempt(job_id)
    asking.join(60)
    assert answers == [401]


def test_wait_outlives_a_restart_of_the_platform(
    client: Client, submit: Callable[..., str], api: Any
) -> None:
    job_id = submit()
    api.begin_attempt(job_id)
    found: list[Job] = []
    waiting = threading.Thread(target=lambda: found.append(client.wait(job_id, timeout=90)))
    waiting.start()
    _until(lambda: "/api/v1/jobs/{job}" in api.http().get("/metrics").text)
    api.kill()
    api.start()
    api.end_attempt(job_id)
    waiting.join(90)
    assert [job.phase for job in found] == ["Completed"]


def test_stranger_sees_nothing(client: Client, submit: Callable[..., str], api: Any) -> None:
    job_id = submit(name="private")
    client.add_user("stranger", "a-long-enough-password")
    client.add_workspace("elsewhere")
    client.set_member("elsewhere", "stranger", "developer")
    from trainshed.client.directory import sign_in

    token = sign_in(api.url, "stranger", "a-long-enough-password")
    stranger = api.client(token)
    assert stranger.jobs() == []
    for action in (
        stranger.get,
        stranger.stop,
        stranger.delete,
        stranger.explain,
        stranger.events,
        stranger.rerun,
    ):
        with pytest.raises(NotFound):
            action(job_id)
    with pytest.raises(NotFound):
        list(stranger.logs(job_id))
    with pytest.raises(NotAuthenticated):
        sign_in(api.url, "stranger", "wrong-password-here")


def _until(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.02)
