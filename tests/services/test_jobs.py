"""Jobs: every mistake is told before anything is written."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from trainshed.db.attempts import AttemptRow, insert_attempt
from trainshed.db.engine import begin, read
from trainshed.db.events import add_event
from trainshed.db.jobs import change_job
from trainshed.db.nodes import replace_nodes
from trainshed.model.errors import Conflict, InvalidInput, NotAllowed, NotFound, TrainshedError, Unavailable
from trainshed.model.job_spec import parse_job_spec
from trainshed.model.launch_plan import to_json
from trainshed.model.phase import Phase
from trainshed.services import buckets, code, jobs
from trainshed.services.identity import Caller
from trainshed.services.job_credentials import load_job_secrets
from trainshed.services.jobs import JobView
from trainshed.services.platform import Platform

Submit = Callable[..., JobView]


def test_a_submitted_job_waits_for_the_control_loop(
    platform: Platform, ann: Caller, submit: Submit, row_of: Any, clock: Any
) -> None:
    buckets.create_bucket(platform, ann, "red-data")
    platform.store.put("red-data", "digits/a.csv", b"1")
    platform.store.put_folder("red-data", "empty/")
    view = submit(
        ann,
        inputs={
            "data": "obs://red-data/digits",
            "one": "obs://red-data/digits/a.csv",
            "none": "obs://red-data/empty/",
        },
        outputs={"out": "obs://red-data/results/"},
        log_url="obs://red-data/logs/",
        parameters={"z": 1, "a": 2},
        secrets={"API_KEY": "geheim-123"},
        flavor="ascend.4",
        priority=7,
    )
    row = row_of(view.id)
    assert (view.phase, view.owner, view.name) == ("Creating", "ann", f"train-{view.id[:4]}")
    assert row.rehearsal
    assert row.created_at == clock.now
    # A folder that was written without a slash is known as one from here on.
    assert view.spec["inputs"]["data"] == "obs://red-data/digits/"
    assert view.spec["inputs"]["one"] == "obs://red-data/digits/a.csv"
    assert list(view.spec["parameters"]) == ["z", "a"]
    assert load_job_secrets(platform, view.id) == {"API_KEY": "geheim-123"}
    with read(platform.engine) as connection:
        everything = str(
            [connection.execute(text(f"SELECT * FROM {table}")).all() for table in ("jobs", "events")]
        )
    assert "geheim-123" not in everything + json.dumps(dataclasses.asdict(view))
    assert [event.message for event in jobs.job_events(platform, ann, view.name)] == ["Submitted by ann."]
    assert jobs.get_job(platform, ann, view.id[:8]) == view


def test_a_made_up_name_that_is_taken_is_made_up_again(
    platform: Platform, ann: Caller, submit: Callable[..., JobView], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [uuid.UUID(int=number << 96) for number in (0xABCD0001, 0xABCD0002, 0xABCD0003)]
    monkeypatch.setattr("trainshed.services.submission.uuid.uuid4", lambda: ids.pop(0))
    assert [submit(ann).name, submit(ann).name] == ["train-abcd", "train-abcd00030000"]


WRONG: list[tuple[dict[str, Any], type[TrainshedError], str, str]] = [
    ({"flavor": "ascned.8"}, NotFound, "unknown_flavor", "ascend.8"),
    ({"flavor": "cpu.1", "nodes": 1000}, InvalidInput, "never_fits", "nodes"),
    ({"engine": "pytorhc"}, NotFound, "unknown_engine", "pytorch"),
    ({"inputs": {"d": "obs://red-data/nothing/"}}, NotFound, "no_such_input", "obs ls"),
    ({"inputs": {"d": "obs://no-such-bucket/x/"}}, NotFound, "no_such_bucket", "obs"),
    ({"inputs": {"d": "obs://blue-data/x/"}}, NotFound, "no_such_bucket", "obs"),
    ({"outputs": {"o": "obs://no-such-bucket/x/"}}, NotFound, "no_such_bucket", "obs"),
    ({"outputs": {"o": "obs://blue-data/x/"}}, NotFound, "no_such_bucket", "obs"),
    ({"log_url": "obs://blue-data/x/"}, NotFound, "no_such_bucket", "obs"),
    ({"boot": "trian.py"}, NotFound, "no_boot_file", "train.py"),
    ({"code": "snapshot:" + "0" * 64}, NotFound, "no_such_snapshot", "PUT"),
    ({"code": "snapshot:../../x"}, NotFound, "no_such_snapshot", "PUT"),
    ({"code": "./my-folder"}, InvalidInput, "code_not_uploaded", "upload"),
    ({"code": "/home/ann/code"}, InvalidInput, "code_not_uploaded", "upload"),
    ({"code": "obs://red-data/no-code/"}, NotFound, "no_code_folder", "obs ls"),
    ({"code": "obs://blue-data/x/"}, NotFound, "no_such_bucket", "obs"),
    ({"code": "obs://red-data/code", "boot": "other.py"}, NotFound, "no_boot_file", "train.py"),
    ({"name": "taken"}, Conflict, "name_taken", "name"),
]


@pytest.mark.parametrize(("fields", "kind", "error", "hint"), WRONG)
def test_mistakes_are_told_before_anything_is_written(
    platform: Platform, ann: Caller, bob: Caller, submit: Submit,
    fields: dict[str, Any], kind: type[TrainshedError], error: str, hint: str,
) -> None:  # fmt: skip
    buckets.create_bucket(platform, ann, "red-data")
    platform.store.put("red-data", "code/train.py", b"1")
    buckets.create_bucket(platform, bob, "blue-data")
    platform.store.put("blue-data", "x/secret", b"1")
    submit(ann, name="taken")
    with pytest.raises(kind) as refusal:
        submit(ann, **fields)
    assert refusal.value.code == error
    assert hint in refusal.value.hint + refusal.value.where
    where = {"never_fits": "nodes", "no_boot_file": "boot"}.get(error, next(iter(fields)))
    assert refusal.value.where.startswith(where)
    assert [job.name for job in jobs.list_jobs(platform, ann)] == ["taken"]


def test_code_in_the_store_is_taken_with_or_without_a_slash(
    platform: Platform, ann: Caller, submit: Submit
) -> None:
    buckets.create_bucket(platform, ann, "red-data")
    platform.store.put("red-data", "code/src/train.py", b"1")
    platform.store.put("red-data", "top.py", b"1")
    for place, boot in (
        ("red-data/code", "src/train.py"),
        ("red-data/code/", "src/train.py"),
        ("red-data", "top.py"),
    ):
        submit(ann, code=f"obs://{place}", boot=boot)


def test_before_the_machines_are_known_a_submit_says_so(
    platform: Platform, ann: Caller, submit: Submit
) -> None:
    with begin(platform.engine) as connection:
        replace_nodes(connection, "local", [])
    with pytest.raises(Unavailable, match="machines"):
        submit(ann)


def test_the_open_network_can_be_forbidden(platform: Platform, ann: Caller, submit: Submit) -> None:
    submit(ann, network="open")
    closed = dataclasses.replace(
        platform, settings=dataclasses.replace(platform.settings, open_network=False)
    )
    with pytest.raises(NotAllowed) as refusal:
        jobs.submit(closed, ann, parse_job_spec({"command": "true", "network": "open"}))
    assert refusal.value.where == "network"


def test_a_viewer_looks_but_does_not_touch(
    platform: Platform, ann: Caller, make_caller: Callable[..., Caller], submit: Submit
) -> None:
    view = submit(ann, name="job")
    eve = make_caller("eve", "viewer", "red")
    assert jobs.get_job(platform, eve, "job").id == view.id
    spec = parse_job_spec({"command": "true"})
    for forbidden in (
        lambda: jobs.submit(platform, eve, spec),
        lambda: jobs.dry_run(platform, eve, spec),
        lambda: jobs.stop_job(platform, eve, "job"),
        lambda: jobs.delete_job(platform, eve, "job"),
        lambda: jobs.rerun_job(platform, eve, "job"),
    ):
        with pytest.raises(NotAllowed):
            forbidden()
    # A colleague may look and run it again, but not stop it; a manager may.
    dan, mia = make_caller("dan", "developer", "red"), make_caller("mia", "manager", "red")
    with pytest.raises(NotAllowed):
        jobs.stop_job(platform, dan, "job")
    jobs.stop_job(platform, mia, "job")


def test_a_dry_run_shows_all_and_writes_nothing(platform: Platform, ann: Caller) -> None:
    spec = parse_job_spec({"command": "echo hi", "secrets": {"KEY": "geheim-123"}, "flavor": "ascend.8"})
    shown = jobs.dry_run(platform, ann, spec)
    assert "geheim-123" not in json.dumps(shown)
    assert shown["spec"]["secrets"] == {"KEY": "**********"}
    assert shown["spec"]["nodes"] == 1
    assert shown["launch"][0]["processes"][0]["arguments"][-1] == "echo hi"
    assert shown["launch"][0]["secret_names"][0] == "KEY"
    assert jobs.list_jobs(platform, ann) == []


def test_a_stop_is_asked_for_once(platform: Platform, ann: Caller, submit: Submit, advance: Any) -> None:
    view = submit(ann)
    stopped = jobs.stop_job(platform, ann, view.name, "wrong data")
    assert (stopped.stop_requested, stopped.stop_reason, stopped.phase) == (True, "wrong data", "Creating")
    assert jobs.stop_job(platform, ann, view.name, "again").stop_reason == "wrong data"
    assert len(jobs.job_events(platform, ann, view.name)) == 2
    ended = submit(ann)
    advance(ended.id, Phase.TERMINATED)
    assert not jobs.stop_job(platform, ann, ended.name).stop_requested


def test_a_rerun_is_the_same_job_again(
    platform: Platform, ann: Caller, submit: Submit, row_of: Any, advance: Any
) -> None:
    view = submit(ann, name="train", parameters={"lr": 0.1}, secrets={"KEY": "geheim-123"})
    with pytest.raises(Conflict, match="snapshotted"):
        jobs.rerun_job(platform, ann, "train")
    environment = {"engine": "python", "python": "3.11", "packages": ["numpy==1.26.4"], "digest": "abc"}
    advance(view.id, Phase.PENDING, environment=environment)
    again = jobs.rerun_job(platform, ann, "train")
    old, new = row_of(view.id), row_of(again.id)
    assert again.name == "train-2"
    assert (new.phase, new.version, new.attempt) == (Phase.CREATING, 1, 0)
    for field in ("environment", "code_bucket", "code_prefix", "flavor", "nodes", "rehearsal"):
        assert getattr(new, field) == getattr(old, field), field
    assert {**new.spec, "name": "train"} == old.spec
    assert load_job_secrets(platform, again.id) == {"KEY": "geheim-123"}
    assert jobs.rerun_job(platform, ann, view.id).name == "train-3"
    advance(again.id, Phase.PENDING)
    assert jobs.rerun_job(platform, ann, "train-2").name == "train-4"
    assert jobs.rerun_job(platform, ann, "train", "mine").name == "mine"
    with pytest.raises(Conflict):
        jobs.rerun_job(platform, ann, "train", "mine")
    with pytest.raises(InvalidInput):
        jobs.rerun_job(platform, ann, "train", "no/name")


def test_only_an_ended_job_is_deleted_and_all_of_it(
    platform: Platform, ann: Caller, submit: Submit, row_of: Any, advance: Any
) -> None:
    first, second = submit(ann, name="first", secrets={"KEY": "geheim-123"}), submit(ann, name="second")
    prefix = row_of(first.id).code_prefix
    with pytest.raises(Conflict) as refusal:
        jobs.delete_job(platform, ann, "first")
    assert "trainshed stop first" in refusal.value.hint
    folder = platform.home.run_folder(first.id, 1, 0)
    folder.rank_log(0).parent.mkdir(parents=True)
    folder.rank_log(0).write_text("log")
    platform.store.ensure_bucket(".jobs")
    platform.store.put(".jobs", f"{first.id}/attempt-1/node-0/rank-0/{0:016d}", b"log")
    platform.store.put(".jobs", f"{second.id}/attempt-1/node-0/rank-0/{0:016d}", b"log")
    advance(first.id, Phase.PENDING, Phase.RUNNING, Phase.FAILED)
    jobs.delete_job(platform, ann, "first")
    assert row_of(first.id) is None
    assert not folder.path.exists()
    assert not (platform.home.jobs / first.id).exists()
    assert [info.key[:36] for info in platform.store.walk(".jobs")] == [second.id]
    # The other job has the same code.
    assert platform.store.list(code.CODE_BUCKET, prefix).objects
    with pytest.raises(NotFound):
        jobs.get_job(platform, ann, "first")
    advance(second.id, Phase.TERMINATED)
    jobs.delete_job(platform, ann, "second")
    assert list(platform.store.walk(code.CODE_BUCKET)) == []
    # The name is free again.
    submit(ann, name="first")


def test_the_code_of_a_job_outlives_it_for_its_rerun(
    platform: Platform, ann: Caller, submit: Submit, row_of: Any, advance: Any
) -> None:
    view = submit(ann, name="old")
    platform.store.ensure_bucket(".jobs")
    platform.store.put(".jobs", f"{view.id}/code/train.py", b"1")
    advance(view.id, Phase.PENDING, code_bucket=".jobs", code_prefix=f"{view.id}/code/")
    again = jobs.rerun_job(platform, ann, "old")
    advance(view.id, Phase.TERMINATED)
    jobs.delete_job(platform, ann, "old")
    assert platform.store.info(".jobs", f"{view.id}/code/train.py")
    advance(again.id, Phase.TERMINATED)
    jobs.delete_job(platform, ann, again.id)
    assert list(platform.store.walk(".jobs")) == []


def test_a_deletion_that_died_is_finished_later(
    platform: Platform, ann: Caller, submit: Submit, row_of: Any, advance: Any
) -> None:
    view = submit(ann)
    advance(view.id, Phase.TERMINATED, deleted_at=5.0)
    folder = platform.home.run_folder(view.id, 1, 0).path
    folder.mkdir(parents=True)
    assert jobs.purge_deleted_jobs(platform) == 1
    assert row_of(view.id) is None
    assert not folder.exists()
    assert jobs.purge_deleted_jobs(platform) == 0


def test_code_that_vanishes_during_a_submit_makes_it_fail(
    platform: Platform, ann: Caller, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainshed.services import submission

    monkeypatch.setattr(submission, "_is_still_there", lambda *_: False)
    with pytest.raises(Conflict) as refusal:
        submit(ann, name="job")
    assert refusal.value.code == "snapshot_gone"
    assert jobs.list_jobs(platform, ann) == []
    monkeypatch.undo()
    submit(ann, name="job")


def test_lists_are_paged_and_filtered(
    platform: Platform, ann: Caller, submit: Submit, clock: Any, advance: Any
) -> None:
    names = []
    for number in range(5):
        clock.now += 1
        names.insert(0, submit(ann, name=f"job-{number}").name)
    page = jobs.list_jobs(platform, ann, limit=2)
    rest = jobs.list_jobs(platform, ann, limit=10, before=page[-1].id)
    assert [view.name for view in page + rest] == names
    advance(page[0].id, Phase.PENDING)
    assert [view.name for view in jobs.list_jobs(platform, ann, "pending")] == [names[0]]
    with pytest.raises(InvalidInput, match="phase") as refusal:
        jobs.list_jobs(platform, ann, "Runing")
    assert "Running" in refusal.value.hint
    for limit in (0, -1, 10**6):
        with pytest.raises(InvalidInput):
            jobs.list_jobs(platform, ann, limit=limit)


def test_a_waiting_job_says_why_without_telling_names_of_others(
    platform: Platform, ann: Caller, bob: Caller, submit: Submit, advance: Any
) -> None:
    holder = submit(bob, name="blue-secret-project", flavor="ascend.8")
    advance(holder.id, Phase.PENDING, Phase.RUNNING, attempt=1)
    placement = {"node": "host", "devices": list(range(8)), "cpus": 0, "memory_mb": 0}
    with begin(platform.engine) as connection:
        insert_attempt(connection, AttemptRow(holder.id, 1, "local", [placement], "running", 1.0))
    ahead = submit(bob, name="blue-also-waits", flavor="ascend.8", priority=5)
    mine = submit(ann, name="red-first", flavor="ascend.8", priority=2)
    last = submit(ann, name="red-last", flavor="ascend.8")
    for job in (ahead, mine, last):
        advance(job.id, Phase.PENDING, queued_at=platform.clock() - 60)
    told = jobs.explain_job(platform, ann, "red-last")
    assert told.phase == "Pending"
    assert "8 x ascend" in told.summary
    assert told.answer["position"] == 3
    assert told.answer["ahead"] == ["a job of another workspace", "red-first"]
    everything = json.dumps([told.__dict__, jobs.get_job(platform, ann, "red-last").wait])
    assert "blue" not in everything
    assert "red-first" in everything
    assert "blue-secret-project" in json.dumps(jobs.explain_job(platform, bob, "blue-also-waits").__dict__)


def test_a_failed_job_says_why_and_its_secrets_stay_hidden(
    platform: Platform, ann: Caller, submit: Submit, advance: Any
) -> None:
    from trainshed.model.attempt import Ending

    view = submit(ann, name="job", secrets={"KEY": "geheim-123"})
    ending = to_json(
        Ending(
            "failed",
            "user",
            "exit",
            "Rank 3 ended: geheim-123",
            "See geheim-123.",
            3,
            1,
            line="KeyError: geheim-123",
        )
    )
    with begin(platform.engine) as connection:
        insert_attempt(
            connection,
            AttemptRow(
                view.id,
                1,
                "local",
                [],
                "ended",
                1.0,
                ending=ending,
                reports=[{"timeline": [{"m": "geheim-123"}]}],
            ),
        )
        add_event(connection, view.id, 2.0, "error", "control", "Failed: geheim-123")
    advance(view.id, Phase.PENDING, Phase.RUNNING, Phase.FAILED, ending=ending, attempt=1)
    told = jobs.explain_job(platform, ann, "job")
    assert "rank 3" in str(told.facts)
    assert "Cause: the job's own code." in told.facts
    shown = [
        told.__dict__,
        dataclasses.asdict(jobs.get_job(platform, ann, "job")),
        [dataclasses.asdict(item) for item in jobs.attempts(platform, ann, "job")],
        [dataclasses.asdict(item) for item in jobs.job_events(platform, ann, "job")],
        [dataclasses.asdict(item) for item in jobs.list_jobs(platform, ann)],
    ]
    text = json.dumps(shown)
    assert "geheim" not in text
    assert "KeyError: ****" in text


def test_a_job_stays_in_its_workspace_even_if_an_administrator_submits_it(
    platform: Platform, admin: Caller, bob: Caller, submit: Submit
) -> None:
    buckets.create_bucket(platform, bob, "blue-data")
    platform.store.put("blue-data", "x/train.py", b"1")
    assert buckets.readable_bucket(platform, admin, "blue-data")
    for fields in (
        {"inputs": {"d": "obs://blue-data/x/"}},
        {"outputs": {"o": "obs://blue-data/x/"}},
        {"log_url": "obs://blue-data/x/"},
        {"code": "obs://blue-data/x/"},
    ):
        with pytest.raises(NotAllowed) as refusal:
            submit(admin, **fields)
        assert refusal.value.code == "foreign_bucket"
        assert refusal.value.where.startswith(next(iter(fields)))


def test_a_job_that_rests_after_failures_says_for_how_long(
    platform: Platform, ann: Caller, submit: Submit, row_of: Any, clock: Any
) -> None:
    view = submit(ann, restarts=5)
    with begin(platform.engine) as connection:
        row = row_of(view.id)
        waiting = change_job(connection, row, phase=Phase.PENDING, attempt=3, wait={"until": clock.now + 40})
        assert waiting is not None
    explained = jobs.explain_job(platform, ann, view.id)
    assert "failed 3 times" in explained.summary and "40 s" in explained.summary
    clock.now += 60
    assert "rests" not in jobs.explain_job(platform, ann, view.id).summary
