"""A running job's log at its destination."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainshed.model.home import RunFolder
from trainshed.model.launch_plan import Environment, LogObject, NodeLaunch, ProcessPlan
from trainshed.runner.live_export import LiveExport
from trainshed.runner.log_archive import LogArchive
from trainshed.store.object_store import ObjectStore

Export = Callable[..., LiveExport]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """The run folder of a node whose first rank has said something."""
    made = RunFolder(tmp_path)
    made.rank_log(0).parent.mkdir(parents=True, exist_ok=True)
    made.rank_log(0).write_text("one\n")
    return made


@pytest.fixture
def export(store: ObjectStore, folder: RunFolder) -> Export:
    """Makes an export to a bucket of the workspace, or to another's."""

    def make(said: list[str], bucket: str = "mine", workspace: str = "w") -> LiveExport:
        launch = NodeLaunch(
            "id",
            "name",
            workspace,
            1,
            0,
            1,
            1,
            "",
            "",
            "/job/code",
            (ProcessPlan(0, 0, ("true",), {}, "/"),),
            Environment("python", "3.11"),
            log_bucket=bucket,
            log_prefix="logs/",
            log_objects=(LogObject("rank-0", "a.log"), LogObject("platform", "p.log")),
        )
        archive = LogArchive(store, "id/attempt-1/node-0/", 1 << 20, [])
        return LiveExport(launch, store, archive, folder, said.append, every=0.02, first_after=0.0)

    return make


def read(store: ObjectStore, key: str) -> str:
    with store.open("mine", key) as file:
        return file.read().decode()


def test_the_log_is_written_again_when_it_has_grown(
    store: ObjectStore, folder: RunFolder, export: Export, support: Any
) -> None:
    store.create_bucket("mine", "w")
    said: list[str] = []
    subject = export(said)
    subject.start()
    try:
        support.wait_until(lambda: store.list("mine", "logs/").objects, what="the first export")
        assert read(store, "logs/a.log") == "one\n"
        with folder.rank_log(0).open("a") as file:
            file.write("two\n")
        support.wait_until(lambda: read(store, "logs/a.log") == "one\ntwo\n", what="the second export")
    finally:
        subject.stop()
    # What has nothing in it is not written.
    assert [info.key for info in store.list("mine", "logs/").objects] == ["logs/a.log"]
    assert said == []


def test_a_foreign_or_missing_bucket_is_said_and_harms_nothing(
    store: ObjectStore, export: Export, support: Any
) -> None:
    store.create_bucket("mine", "somebody-else")
    for bucket in ("mine", "gone"):
        said: list[str] = []
        subject = export(said, bucket)
        subject.start()
        support.wait_until(lambda said=said: len(said) > 1, what="a second try")
        subject.stop()
    assert not store.list("mine", "logs/").objects


def test_without_a_destination_nothing_runs(export: Export) -> None:
    subject = export([], bucket="")
    subject.start()
    subject.stop()
