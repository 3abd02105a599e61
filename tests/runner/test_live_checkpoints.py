"""Checkpoints come home while a job trains: whole files, and those that belong together."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from trainshed.model.errors import Unavailable
from trainshed.model.launch_plan import CheckpointFolder, Environment, NodeLaunch
from trainshed.runner import live_checkpoints
from trainshed.runner.checkpoint_versions import find_versions, read_versions
from trainshed.runner.checkpoints import bring_checkpoints, checkpoint_folder, stage_checkpoints
from trainshed.runner.live_checkpoints import LiveCheckpoints
from trainshed.store import open_store
from trainshed.store.object_store import ObjectStore


def launch(attempt: int = 1, node: int = 0, nodes: int = 1, place: str = "") -> NodeLaunch:
    """The launch of a node of an attempt."""
    plan = CheckpointFolder("/job/checkpoints", "mine" if place else "", place)
    environment = Environment("python", "3.11")
    given = ("job", "name", "space", attempt, node, nodes, nodes, "b", "p/", "/job/code", ())
    return NodeLaunch(*given, environment, checkpoints=plan)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """An object store with the archive's bucket, and one of the job's own."""
    opened = open_store(f"file://{tmp_path / 'store'}")
    opened.ensure_bucket(".jobs")
    opened.create_bucket("mine", "space")
    return opened


def live(store: ObjectStore, root: Path, plan: NodeLaunch | None = None, limit: int = 0) -> LiveCheckpoints:
    """The watch over a folder, with looks that are close together."""
    plan = plan or launch()
    stage_checkpoints(plan, store, root, lambda words: None)
    said: list[str] = []
    made = LiveCheckpoints(plan, store, root, every=1, limit=limit, say=said.append, quiet=0.01)
    made.said = said  # type: ignore[attr-defined]
    return made


def write(root: Path, **files: str) -> None:
    """What a script does: write aside, then rename."""
    for name, text in files.items():
        aside = root / f"{name}.aside"
        aside.write_text(text)
        aside.replace(checkpoint_folder(root) / name)


def found(store: ObjectStore, root: Path, attempt: int = 2, node: int = 0, nodes: int = 1) -> dict[str, str]:
    """What the next attempt begins with."""
    stage_checkpoints(launch(attempt, node, nodes), store, root, lambda words: None)
    return {path.name: path.read_text() for path in checkpoint_folder(root).iterdir()}


def objects(store: ObjectStore) -> int:
    """The files of live versions in the archive."""
    return sum("/live/node-0/" in info.key for info in store.walk(".jobs", ""))


class Between:
    """Does something between the two looks."""

    def __init__(self, watch: LiveCheckpoints, monkeypatch: pytest.MonkeyPatch) -> None:
        self._watch, self._monkeypatch = watch, monkeypatch

    def look(self, moment: int, *actions: object) -> None:
        """Look; the actions come after the first look."""
        looks = []
        real = live_checkpoints.look_into

        def look_into(folder: Path) -> object:
            if looks:
                for action in actions:
                    action()  # type: ignore[operator]
            looks.append(1)
            return real(folder)

        with self._monkeypatch.context() as patch:
            patch.setattr(live_checkpoints, "look_into", look_into)
            self._watch.look(moment)


def test_the_next_attempt_gets_what_came_home(store: ObjectStore, tmp_path: Path) -> None:
    watch = live(store, tmp_path / "1")
    watch.look(1)
    assert found(store, tmp_path / "none") == {}
    write(tmp_path / "1", last="epoch 1", best="epoch 1")
    (checkpoint_folder(tmp_path / "1") / "deep").mkdir()
    watch.look(2)
    write(tmp_path / "1", last="epoch 2")
    watch.look(3)
    # Its machine is gone: nothing more is heard of it.
    assert found(store, tmp_path / "2") == {"last": "epoch 2", "best": "epoch 1"}
    # What has not changed was sent once; older versions go when there are newer ones.
    assert objects(store) == 3
    for epoch in range(3, 9):
        write(tmp_path / "1", last=f"epoch {epoch}")
        watch.look(epoch + 1)
    assert len(read_versions(store, "job", 1, 0)) == 3 and objects(store) == 4
    assert found(store, tmp_path / "3") == {"last": "epoch 8", "best": "epoch 1"}


def test_an_attempt_that_ended_well_leaves_no_versions(store: ObjectStore, tmp_path: Path) -> None:
    watch = live(store, tmp_path / "1")
    write(tmp_path / "1", last="epoch 1")
    watch.look(1)
    write(tmp_path / "1", last="epoch 2")
    assert bring_checkpoints(launch(), store, tmp_path / "1", 0, lambda words: None) is None
    assert objects(store) == 0 and read_versions(store, "job", 1, 0) == ()
    assert found(store, tmp_path / "2") == {"last": "epoch 2"}
    # The second one dies early, the third later: each goes on from the latest that there is.
    watch = live(store, tmp_path / "2b", launch(2))
    assert found(store, tmp_path / "3", 3) == {"last": "epoch 2"}
    watch = live(store, tmp_path / "3b", launch(3))
    write(tmp_path / "3b", last="epoch 5")
    watch.look(9)
    assert found(store, tmp_path / "4", 4) == {"last": "epoch 5"}
    assert not list(store.walk(".jobs", "job/checkpoints/attempt-1/"))


def test_what_is_being_written_is_not_taken(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = live(store, tmp_path / "1")
    between, folder = Between(watch, monkeypatch), checkpoint_folder(tmp_path / "1")
    write(tmp_path / "1", last="epoch 1")
    (folder / "last.part").write_text("hal")

    def grow(name: str) -> None:
        with (folder / name).open("a") as file:
            file.write("f")

    between.look(1, lambda: grow("last.part"))
    assert found(store, tmp_path / "2") == {"last": "epoch 1"}
    (folder / "last.part").unlink()
    # One that is written again in its place leaves the last version as it is ...
    (folder / "last").write_text("epo")
    write(tmp_path / "1", other="epoch 2")
    between.look(2, lambda: grow("last"))
    assert found(store, tmp_path / "3") == {"last": "epoch 1"}
    # ... unless that goes on for so long that it must be a log.
    for moment in range(3, 7):
        between.look(moment, lambda: grow("last"))
    assert found(store, tmp_path / "4") == {"last": "epoch 1", "other": "epoch 2"}
    # A script that writes aside and renames is never too fast.
    between.look(7, lambda: write(tmp_path / "1", last="epoch 9"))
    between.look(8, lambda: write(tmp_path / "1", last="epoch 10"), lambda: (folder / "other").unlink())
    assert found(store, tmp_path / "5")["last"] == "epoch 9"


def test_a_file_that_changes_while_it_is_sent_is_no_version(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = live(store, tmp_path / "1")
    write(tmp_path / "1", last="whole")
    watch.look(1)
    large = checkpoint_folder(tmp_path / "1") / "large"
    large.write_bytes(bytes(3 << 20))
    real = os.pread

    def pread(file: int, count: int, offset: int) -> bytes:
        os.utime(large, (1, 1))
        return real(file, count, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", pread)
        with pytest.raises(OSError, match="changed while it was read"):
            watch.look(2)
    assert found(store, tmp_path / "2") == {"last": "whole"}
    watch.look(3)
    assert set(found(store, tmp_path / "3")) == {"last", "large"}


def test_parts_of_several_nodes_belong_together(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = [tmp_path / "1-0", tmp_path / "1-1"]
    watches = [live(store, root, launch(1, node, 2)) for node, root in enumerate(roots)]
    for node, root in enumerate(roots):
        write(root, **{f"shard{node}": "epoch 1"})
    watches[0].look(1)
    assert find_versions(store, "job", 1, 2) == [], "the other one has not come yet"
    watches[1].look(1)
    # The first one has sent its second epoch when the other one's machine dies.
    write(roots[0], shard0="epoch 2")
    watches[0].look(2)
    expected = {"shard0": "epoch 1", "shard1": "epoch 1"}
    assert found(store, tmp_path / "2-0", 2, 0, 2) == found(store, tmp_path / "2-1", 2, 1, 2) == expected
    # A look in the middle of a checkpoint is none, and whoever has nothing new says that it is still so.
    between = Between(watches[1], monkeypatch)
    between.look(3, lambda: write(roots[1], shard1="epoch 2"))
    assert found(store, tmp_path / "3-0", 2, 0, 2) == expected
    for watch in watches:
        watch.look(4)
    assert found(store, tmp_path / "4-0", 2, 0, 2) == {"shard0": "epoch 2", "shard1": "epoch 2"}
    write(roots[1], shard1="epoch 3")
    for moment in (5, 6):
        for watch in watches:
            watch.look(moment)
    assert found(store, tmp_path / "5-1", 2, 1, 2) == {"shard0": "epoch 2", "shard1": "epoch 3"}
    # The attempt after that has all files on both nodes; what a node does not touch hides nothing.
    roots = [tmp_path / "n-0", tmp_path / "n-1"]
    watches = [live(store, root, launch(2, node, 2)) for node, root in enumerate(roots)]
    write(roots[1], shard1="epoch 4")
    for watch in watches:
        watch.look(9)
    assert found(store, tmp_path / "6-0", 3, 0, 2) == {"shard0": "epoch 2", "shard1": "epoch 4"}


def test_a_place_of_ones_own_is_kept_as_the_folder_is(store: ObjectStore, tmp_path: Path) -> None:
    store.put("mine", "run/old", b"of an earlier job")
    watch = live(store, tmp_path / "1", launch(place="run/"))
    write(tmp_path / "1", **{"epoch-1": "1"})
    watch.look(1)
    write(tmp_path / "1", **{"epoch-2": "2"})
    (checkpoint_folder(tmp_path / "1") / "epoch-1").unlink()
    (checkpoint_folder(tmp_path / "1") / "old").unlink()
    watch.look(2)
    # What the script has rotated away is gone, but nothing that was there before the job.
    assert [info.key for info in store.walk("mine", "")] == ["run/epoch-2", "run/old"]
    assert objects(store) == 0


def test_too_much_stays_and_a_store_that_is_away_harms_nothing(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = live(store, tmp_path / "1", limit=3)
    write(tmp_path / "1", last="epoch 1")
    watch.look(1)
    assert objects(store) == 0
    watch = live(store, tmp_path / "1")
    tried = threading.Event()

    def put(*_: object, **__: object) -> None:
        tried.set()
        raise Unavailable("The store is away.", code="store_unreachable")

    with monkeypatch.context() as patch:
        patch.setattr(store, "put", put)
        watch.start()
        assert tried.wait(90)
        watch.stop()
    assert watch._thread is not None and not watch._thread.is_alive()
    assert found(store, tmp_path / "2") == {}
    # A stop in the middle of a file leaves nothing of it.
    watch = live(store, tmp_path / "1")
    watch._stopped.set()
    with pytest.raises(live_checkpoints._Stopped):
        watch.look(3)
    assert objects(store) == 0
