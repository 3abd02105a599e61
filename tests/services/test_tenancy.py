"""One tenant never sees anything of another: not even that it exists."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from trainshed.db.attempts import AttemptRow, insert_attempt
from trainshed.db.engine import begin
from trainshed.model.errors import NotAllowed, NotFound, TrainshedError
from trainshed.model.phase import Phase
from trainshed.services import access_keys, buckets, code, jobs, logs, metrics, tokens, users, workspaces
from trainshed.services.identity import Caller, authenticate_token
from trainshed.services.job_credentials import create_job_credentials
from trainshed.services.jobs import JobView
from trainshed.services.platform import Platform


@pytest.fixture
def secret_job(
    platform: Platform, bob: Caller, submit: Callable[..., JobView], advance: Callable[..., None]
) -> JobView:
    """A running job of bob's with a log, and a bucket of bob's with an object."""
    job = submit(bob, name="secret-job")
    advance(job.id, Phase.PENDING, Phase.RUNNING, attempt=1)
    with begin(platform.engine) as connection:
        insert_attempt(connection, AttemptRow(job.id, 1, "local", [{"devices": []}], "running", 1.0))
    log = platform.home.run_folder(job.id, 1, 0).rank_log(0)
    log.parent.mkdir(parents=True)
    log.write_bytes(b"secret")
    buckets.create_bucket(platform, bob, "secret-bucket")
    platform.store.put("secret-bucket", "a", b"1")
    return job


def answers(
    platform: Platform, caller: Caller, job: JobView, digest: str, bucket: str
) -> list[tuple[type, str, str]]:
    """What every way of looking at something says."""
    questions: list[Callable[[], object]] = []
    for ref in (job.id, job.id[:8], job.name):
        questions += [
            lambda ref=ref: jobs.get_job(platform, caller, ref),
            lambda ref=ref: jobs.explain_job(platform, caller, ref),
            lambda ref=ref: jobs.job_events(platform, caller, ref),
            lambda ref=ref: jobs.attempts(platform, caller, ref),
            lambda ref=ref: jobs.stop_job(platform, caller, ref),
            lambda ref=ref: jobs.delete_job(platform, caller, ref),
            lambda ref=ref: jobs.rerun_job(platform, caller, ref),
            lambda ref=ref: logs.log_streams(platform, caller, ref),
            lambda ref=ref: logs.read_log(platform, caller, ref),
            lambda ref=ref: metrics.job_metrics(platform, caller, ref),
            lambda ref=ref: metrics.system_metrics(platform, caller, ref),
        ]
    questions += [
        lambda: jobs.list_jobs(platform, caller, before=job.id),
        lambda: buckets.readable_bucket(platform, caller, bucket),
        lambda: buckets.writable_bucket(platform, caller, bucket),
        lambda: buckets.delete_bucket(platform, caller, bucket),
    ]
    said = []
    for question in questions:
        with pytest.raises(NotFound) as refusal:
            question()
        fault = refusal.value
        said.append((type(fault), fault.code, str(fault).replace(job.id, "ID").replace(job.id[:8], "ID")))
    return said


def test_things_of_others_look_like_things_that_do_not_exist(
    platform: Platform,
    ann: Caller,
    bob: Caller,
    secret_job: JobView,
    tar: Callable[..., tuple[io.BytesIO, str]],
) -> None:
    _, digest = tar({"train.py": b"print(1)\n"})
    assert code.has_snapshot(platform, bob, digest)
    assert not code.has_snapshot(platform, ann, digest)
    foreign = answers(platform, ann, secret_job, digest, "secret-bucket")
    import dataclasses

    nothing = dataclasses.replace(secret_job, id="0" * 8 + secret_job.id[8:], name="no-such-job")
    missing = answers(platform, ann, nothing, digest, "no-such-bucket")
    assert [
        (kind, error, text.replace("secret-job", "X").replace("secret-bucket", "Y"))
        for kind, error, text in foreign
    ] == [
        (kind, error, text.replace("no-such-job", "X").replace("no-such-bucket", "Y"))
        for kind, error, text in missing
    ]
    assert jobs.list_jobs(platform, ann) == []
    assert buckets.list_buckets(platform, ann) == []
    # Nothing has happened to any of it.
    assert not jobs.get_job(platform, bob, "secret-job").stop_requested
    assert logs.read_log(platform, bob, "secret-job").data == b"secret"
    assert [bucket.name for bucket in buckets.list_buckets(platform, bob)] == ["secret-bucket"]


def test_a_member_of_both_sees_each_from_its_own_side_only(
    platform: Platform, make_caller: Callable[..., Caller], secret_job: JobView
) -> None:
    in_blue, in_red = make_caller("ann", "viewer", "blue"), make_caller("ann", "manager", "red")
    assert jobs.get_job(platform, in_blue, "secret-job").id == secret_job.id
    with pytest.raises(NotFound):
        jobs.get_job(platform, in_red, "secret-job")
    with pytest.raises(NotFound):
        buckets.readable_bucket(platform, in_red, "secret-bucket")
    # The token of one workspace does not show the tokens of the other.
    red = tokens.create_token(platform, in_red, "red")
    assert red.id not in [view.id for view in tokens.list_tokens(platform, in_blue)]
    with pytest.raises(NotFound):
        tokens.revoke_token(platform, in_blue, red.id)


def test_the_credentials_of_a_job_reach_its_workspace_only(
    platform: Platform, ann: Caller, secret_job: JobView, submit: Callable[..., JobView]
) -> None:
    buckets.create_bucket(platform, ann, "red-bucket")
    mine = authenticate_token(platform, create_job_credentials(platform, submit(ann).id).token)
    assert buckets.writable_bucket(platform, mine, "red-bucket").name == "red-bucket"
    with pytest.raises(NotFound):
        buckets.readable_bucket(platform, mine, "secret-bucket")
    for forbidden in (
        lambda: jobs.list_jobs(platform, mine),
        lambda: jobs.get_job(platform, mine, "secret-job"),
        lambda: tokens.list_tokens(platform, mine),
        lambda: access_keys.list_access_keys(platform, mine),
        lambda: workspaces.list_workspaces(platform, mine),
        lambda: users.list_users(platform, mine),
    ):
        with pytest.raises(NotAllowed):
            forbidden()


def test_nobody_names_the_platforms_own_buckets(platform: Platform, admin: Caller, ann: Caller) -> None:
    for name in (".code", ".jobs", "..", ".", ""):
        platform.store.ensure_bucket(".code")
        for caller in (ann, admin):
            with pytest.raises(TrainshedError):
                buckets.readable_bucket(platform, caller, name)
            with pytest.raises(TrainshedError):
                buckets.create_bucket(platform, caller, name)


def test_other_workspaces_do_not_exist_for_their_neighbours(
    platform: Platform, admin: Caller, ann: Caller, bob: Caller
) -> None:
    assert [space.name for space in workspaces.list_workspaces(platform, ann)] == ["red"]
    assert workspaces.get_workspace(platform, ann).name == "red"
    for ref in ("blue", bob.workspace_id, "default", "nonsense", "\0"):
        for question in (
            lambda ref=ref: workspaces.get_workspace(platform, ann, ref),
            lambda ref=ref: workspaces.list_members(platform, ann, ref),
            lambda ref=ref: workspaces.set_member(platform, ann, "ann", "manager", ref),
            lambda ref=ref: workspaces.remove_member(platform, ann, "bob", ref),
        ):
            with pytest.raises(NotFound):
                question()
    assert {space.name for space in workspaces.list_workspaces(platform, admin)} == {"default", "red", "blue"}
