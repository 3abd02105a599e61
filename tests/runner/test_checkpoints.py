"""Checkpoints survive from attempt to attempt, whole or not at all."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from trainshed.model.launch_plan import CheckpointFolder, Environment, NodeLaunch
from trainshed.runner.checkpoints import (
    bring_checkpoints,
    checkpoint_folder,
    latest_attempt,
    stage_checkpoints,
)
from trainshed.store import open_store
from trainshed.store.object_store import ObjectStore

PATH = "/job/checkpoints"


def launch(attempt: int, node: int = 0, nodes: int = 1, place: CheckpointFolder | None = None) -> NodeLaunch:
    """The launch of a node of an attempt."""
    return NodeLaunch(
        "job",
        "name",
        "space",
        attempt,
        node,
        nodes,
        nodes,
        "b",
        "p/",
        "/job/code",
        (),
        Environment("python", "3.11"),
        checkpoints=place or CheckpointFolder(PATH),
    )


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """An object store with the archive's bucket."""
    opened = open_store(f"file://{tmp_path / 'store'}")
    opened.ensure_bucket(".jobs")
    return opened


def write(root: Path, **files: str) -> None:
    """What a job leaves in its checkpoint folder."""
    checkpoint_folder(root).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (checkpoint_folder(root) / name).write_text(text)


def read(root: Path) -> dict[str, str]:
    """What the next attempt finds."""
    return {path.name: path.read_text() for path in checkpoint_folder(root).iterdir()}


def bring(store: ObjectStore, plan: NodeLaunch, root: Path, limit: int = 0) -> list[str]:
    """Bring home; what was said."""
    said: list[str] = []
    assert bring_checkpoints(plan, store, root, limit, said.append) is None
    return said


def stage(store: ObjectStore, plan: NodeLaunch, root: Path) -> dict[str, str]:
    """Stage; what lies in the folder then."""
    stage_checkpoints(plan, store, root, lambda words: None)
    return read(root)


def test_the_next_attempt_finds_them(store: ObjectStore, tmp_path: Path) -> None:
    assert stage(store, launch(1), tmp_path / "1") == {}
    write(tmp_path / "1", last="epoch 3")
    bring(store, launch(1), tmp_path / "1")
    assert stage(store, launch(2), tmp_path / "2") == {"last": "epoch 3"}
    write(tmp_path / "2", last="epoch 7")
    bring(store, launch(2), tmp_path / "2")
    # What the second attempt has made superfluous is gone.
    assert not list(store.walk(".jobs", "job/checkpoints/attempt-1/"))
    assert stage(store, launch(3), tmp_path / "3") == {"last": "epoch 7"}


def test_only_an_attempt_that_all_nodes_brought_home_counts(store: ObjectStore, tmp_path: Path) -> None:
    for node in (0, 1):
        write(tmp_path / f"1-{node}", **{f"shard{node}": "old", "same": f"node {node}"})
        bring(store, launch(1, node, 2), tmp_path / f"1-{node}")
    write(tmp_path / "2-0", shard0="new")
    bring(store, launch(2, 0, 2), tmp_path / "2-0")
    assert latest_attempt(store, "job", 2, 3) == 1
    for node in (0, 1):
        found = stage(store, launch(3, node, 2), tmp_path / f"3-{node}")
        assert found == {"shard0": "old", "shard1": "old", "same": "node 0"}
    write(tmp_path / "2-1", shard1="new")
    bring(store, launch(2, 1, 2), tmp_path / "2-1")
    assert stage(store, launch(3, 0, 2), tmp_path / "3b") == {"shard0": "new", "shard1": "new"}


def test_what_a_node_has_not_touched_never_hides_what_another_wrote(
    store: ObjectStore, tmp_path: Path
) -> None:
    for node in (0, 1):
        write(tmp_path / f"1-{node}", **{f"shard{node}": "old", "best": "best"})
        bring(store, launch(1, node, 2), tmp_path / f"1-{node}")
    # Every node of the second attempt has all files, and writes its own one anew.
    for node in (0, 1):
        stage(store, launch(2, node, 2), tmp_path / f"2-{node}")
        write(tmp_path / f"2-{node}", **{f"shard{node}": "new"})
    for node in (1, 0):
        bring(store, launch(2, node, 2), tmp_path / f"2-{node}")
    for node in (0, 1):
        found = stage(store, launch(3, node, 2), tmp_path / f"3-{node}")
        assert found == {"shard0": "new", "shard1": "new", "best": "best"}
    # What the first node removes stays removed.
    (checkpoint_folder(tmp_path / "3-0") / "best").unlink()
    for node in (0, 1):
        bring(store, launch(3, node, 2), tmp_path / f"3-{node}")
    assert stage(store, launch(4, 1, 2), tmp_path / "4-1") == {"shard0": "new", "shard1": "new"}


def test_an_untouched_file_never_replaces_a_newer_one_in_a_place_of_ones_own(
    store: ObjectStore, tmp_path: Path
) -> None:
    store.create_bucket("mine", "space")
    store.put("mine", "run/last", b"old")
    place = CheckpointFolder(PATH, "mine", "run/")
    for node in (0, 1):
        stage(store, launch(1, node, 2, place), tmp_path / f"1-{node}")
    write(tmp_path / "1-0", last="new")
    for node in (0, 1):
        bring(store, launch(1, node, 2, place), tmp_path / f"1-{node}")
    with store.open("mine", "run/last") as file:
        assert file.read() == b"new"


def test_a_place_of_ones_own_is_there_from_the_first_attempt_on(store: ObjectStore, tmp_path: Path) -> None:
    store.create_bucket("mine", "space")
    store.put("mine", "run/last", b"of an earlier job")
    place = CheckpointFolder(PATH, "mine", "run/")
    assert stage(store, launch(1, place=place), tmp_path / "1") == {"last": "of an earlier job"}
    write(tmp_path / "1", last="epoch 1")
    bring(store, launch(1, place=place), tmp_path / "1")
    with store.open("mine", "run/last") as file:
        assert file.read() == b"epoch 1"


def test_too_much_is_not_kept_and_said(store: ObjectStore, tmp_path: Path) -> None:
    write(tmp_path / "1", big="x" * 1000)
    assert "more than this platform keeps" in bring(store, launch(1), tmp_path / "1", limit=999)[0]
    assert latest_attempt(store, "job", 1, 2) == 0


def test_links_are_not_followed(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    os.symlink("/etc", checkpoint_folder(tmp_path / "1"))
    assert bring(store, launch(1), tmp_path / "1") == []
    write(tmp_path / "2", last="x")
    os.symlink("/etc/passwd", checkpoint_folder(tmp_path / "2") / "passwd")
    bring(store, launch(2), tmp_path / "2")
    assert stage(store, launch(3), tmp_path / "3") == {"last": "x"}


def test_a_job_without_a_checkpoint_folder(store: ObjectStore, tmp_path: Path) -> None:
    plan = replace(launch(1), checkpoints=None)
    stage_checkpoints(plan, store, tmp_path, lambda words: None)
    assert not checkpoint_folder(tmp_path).exists() and bring(store, plan, tmp_path) == []
