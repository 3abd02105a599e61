"""What TensorBoard shows for a job, and who may ask for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainshed.db.attempts import AttemptRow, insert_attempt
from trainshed.db.engine import begin, read
from trainshed.db.jobs import JobRow, find_job
from trainshed.model.errors import Conflict, InvalidInput, NotFound
from trainshed.model.phase import Phase
from trainshed.runner.tools.event_mirror import EventMirror, is_shown
from trainshed.services import buckets, tensorboard
from trainshed.services.identity import Caller
from trainshed.services.jobs import JobView
from trainshed.services.platform import Platform


def row_of(platform: Platform, caller: Caller, ref: str) -> JobRow:
    """The job as the database has it."""
    with read(platform.engine) as connection:
        return find_job(connection, caller.workspace_id, ref)


@pytest.fixture
def ended(
    platform: Platform, ann: Caller, submit: Callable[..., JobView], advance: Callable[..., None]
) -> JobRow:
    """A job that has ended and wrote events to its output."""
    buckets.create_bucket(platform, ann, "out")
    job = submit(ann, name="ended", outputs={"train_url": "obs://out/run/"})
    with begin(platform.engine) as connection:
        insert_attempt(connection, AttemptRow(job.id, 1, "local", [{"node": "host"}], "ended", 1.0))
    advance(job.id, Phase.PENDING, Phase.RUNNING, Phase.COMPLETED, attempt=1)
    return row_of(platform, ann, "ended")


def test_an_ended_job_is_shown_from_the_store(platform: Platform, ann: Caller, ended: JobRow) -> None:
    plan, shows, has_events = tensorboard.plan_tensorboard(platform, ann, ended)
    assert shows == ["files that the job left", "/job/outputs/train_url"] and not has_events
    with pytest.raises(NotFound, match="no events"):
        tensorboard.open_tensorboard(platform, ann, "ended")
    platform.store.put("out", "run/a/events.out.tfevents.1.host", b"x")
    again, _, has_events = tensorboard.plan_tensorboard(platform, ann, ended)
    assert has_events and again.id == plan.id and again.folder == "/logs"
    chosen, shows, _ = tensorboard.plan_tensorboard(platform, ann, ended, "/job/outputs/train_url/a/")
    assert (chosen.folder, shows) == ("/logs/train_url/a", ["/job/outputs/train_url"])
    left, _, _ = tensorboard.plan_tensorboard(platform, ann, ended, "/job/code/runs")
    assert left.folder == "/logs/working-folder/job/code/runs" and chosen.id != left.id != plan.id


@pytest.mark.parametrize("logdir", ["runs", "/job/../etc", "../x"])
def test_paths_that_lead_elsewhere_are_refused(
    platform: Platform, ann: Caller, ended: JobRow, logdir: str
) -> None:
    with pytest.raises(InvalidInput):
        tensorboard.plan_tensorboard(platform, ann, ended, logdir)


def test_a_stranger_sees_neither_the_job_nor_the_bucket(
    platform: Platform, ann: Caller, bob: Caller, ended: JobRow
) -> None:
    with pytest.raises(NotFound):
        tensorboard.open_tensorboard(platform, bob, ended.id)
    with pytest.raises(NotFound):
        tensorboard.stop_tensorboard(platform, bob, ended.id)
    buckets.create_bucket(platform, bob, "bobs")
    with pytest.raises(NotFound):
        tensorboard.plan_tensorboard(platform, ann, ended, "obs://bobs/x/")
    plan, _, _ = tensorboard.plan_tensorboard(platform, ann, ended, "obs://out/run/")
    assert (plan.sources[0].bucket, plan.sources[0].key) == ("out", "run/")
    # A bucket that was deleted and taken by somebody else since is not shown.
    platform.store.delete_bucket("out")
    buckets.create_bucket(platform, bob, "out")
    plan, _, _ = tensorboard.plan_tensorboard(platform, ann, ended)
    assert [source.bucket for source in plan.sources] == [".jobs"]


def test_a_job_that_has_not_started(platform: Platform, ann: Caller, submit: Callable[..., JobView]) -> None:
    submit(ann, name="waits")
    with pytest.raises(Conflict, match="not started"):
        tensorboard.open_tensorboard(platform, ann, "waits")


def test_only_events_are_fetched_and_only_when_they_change(
    platform: Platform, ann: Caller, tmp_path: Path
) -> None:
    buckets.create_bucket(platform, ann, "data")
    store: Any = platform.store
    store.put("data", "run/a/events.out.tfevents.1", b"one")
    store.put("data", "run/model.ckpt", b"large")
    store.put("data", "run/plugins/profile/x.pb", b"p")
    mirror = EventMirror(store, "data", "run/", tmp_path / "mirror")
    assert mirror.refresh() == 2 and mirror.refresh() == 0
    store.put("data", "run/a/events.out.tfevents.1", b"one two")
    assert mirror.refresh() == 1
    found = {
        str(path.relative_to(tmp_path / "mirror")): path.read_bytes()
        for path in (tmp_path / "mirror").rglob("*")
        if path.is_file()
    }
    assert found == {"a/events.out.tfevents.1": b"one two", "plugins/profile/x.pb": b"p"}
    assert is_shown("a/events.out.tfevents.9.v2") and not is_shown("a/train.log")
    assert EventMirror(store, "gone", "x/", tmp_path / "other").refresh() == 0
