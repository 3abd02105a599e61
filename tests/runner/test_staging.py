"""How code and inputs get ready for a job: copied when small, shared when large, stoppable, told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainshed.model.errors import HostUnfit, NotFound
from trainshed.model.launch_plan import Environment, InputFolder, NodeLaunch, OutputFolder
from trainshed.runner import staging
from trainshed.runner.site import Site
from trainshed.runner.staging import StagingWatch, stage
from trainshed.store.object_store import ObjectStore
from trainshed.store.staged_tree import TreeFacts


class Stopped(Exception):
    """What the test's stop raises."""


def a_launch(key: str = "set/", **changes: Any) -> NodeLaunch:
    values: dict[str, Any] = {
        "job_id": "1",
        "job_name": "job",
        "workspace_id": "w",
        "attempt": 1,
        "node_index": 0,
        "node_count": 1,
        "world_size": 1,
        "code_bucket": "data",
        "code_prefix": "code/",
        "code_path": "/job/code",
        "processes": (),
        "environment": Environment("python", "3.11"),
        "inputs": (InputFolder("data", "data", key, "/job/inputs/data"),),
        "outputs": (OutputFolder("out", "data", "out/", "/job/outputs/out"),),
    }
    return NodeLaunch(**{**values, **changes})


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(store_url="", environments="", input_cache=str(tmp_path / "cache"))


@pytest.fixture
def data(store: ObjectStore) -> ObjectStore:
    store.ensure_bucket("data", "w")
    store.put("data", "code/train.py", b"print()")
    for number in range(40):
        store.put("data", f"set/{number}.bin", b"x" * 100)
    return store


def test_a_large_input_is_shared_and_small_code_is_copied(
    data: ObjectStore, site: Site, tmp_path: Path
) -> None:
    said: list[str] = []
    folders = stage(a_launch(), lambda: data, site, tmp_path / "one", said.append)
    assert list(folders.trees) == [folders.input("data")]
    assert len(list(folders.trees[folders.input("data")].folder.iterdir())) == 40
    assert list(folders.input("data").iterdir()) == []
    assert (folders.code / "train.py").read_bytes() == b"print()"
    assert folders.output("out").is_dir()
    assert len(said) == 1 and said[0].startswith("input data: 40 files, 4.0 kB, staged in ")
    again = stage(a_launch(), lambda: data, site, tmp_path / "two", said.append)
    assert said[1] == "input data: 40 files, 4.0 kB, already on this machine"
    again.close()
    folders.close()
    assert not folders.trees


def test_a_job_without_a_wall_gets_copies(data: ObjectStore, site: Site, tmp_path: Path) -> None:
    open_site = Site(store_url="", environments="", input_cache=site.input_cache, allow_unsandboxed=True)
    folders = stage(a_launch(), lambda: data, open_site, tmp_path / "root", lambda text: None)
    assert not folders.trees
    files = list(folders.input("data").iterdir())
    assert len(files) == 40 and all(file.stat().st_nlink == 1 for file in files)


def test_a_cache_that_cannot_be_used_means_copies(data: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    site = Site(store_url="", environments="", input_cache=str(tmp_path / "file" / "cache"))
    said: list[str] = []
    folders = stage(a_launch(), lambda: data, site, tmp_path / "root", said.append)
    assert len(list(folders.input("data").iterdir())) == 40
    assert "the input cache cannot be used" in said[0]


@pytest.mark.parametrize("cached", [True, False])
def test_a_stop_ends_the_staging(
    data: ObjectStore, site: Site, tmp_path: Path, cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_LOOK_EVERY", 0.0)
    looks = iter(range(1000))

    def check_stop() -> None:
        if next(looks) > 20:
            raise Stopped

    place = site if cached else Site(store_url="", environments="")
    with pytest.raises(Stopped):
        stage(a_launch(), lambda: data, place, tmp_path / "root", lambda text: None, check_stop)
    left = [path.name for path in (tmp_path / "cache").glob("*")]
    assert not [name for name in left if name.startswith("new-")]
    assert len(list((tmp_path / "root" / "inputs" / "data").iterdir())) < 40


def test_what_does_not_fit_on_the_disk_is_refused_at_once(
    data: ObjectStore, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_free_bytes", lambda folder: staging._SPARE_BYTES + 100)
    with pytest.raises(HostUnfit) as caught:
        stage(
            a_launch(),
            lambda: data,
            Site(store_url="", environments=""),
            tmp_path / "root",
            lambda text: None,
        )
    assert caught.value.code == "disk_full"
    assert not list((tmp_path / "root" / "inputs" / "data").iterdir())
    # A shared tree takes no room.
    stage(a_launch(), lambda: data, site, tmp_path / "other", lambda text: None).close()


@pytest.mark.parametrize("key", ["gone/", "set/gone.bin"])
def test_an_input_that_is_gone_is_named(data: ObjectStore, site: Site, tmp_path: Path, key: str) -> None:
    with pytest.raises(NotFound, match="The input 'data'") as caught:
        stage(a_launch(key), lambda: data, site, tmp_path / "root", lambda text: None)
    assert caught.value.code == "input"


def test_the_watch_tells_files_bytes_and_time_left() -> None:
    said: list[str] = []
    clock = iter([0.0, 1.0, 5.5, 6.0, 11.0])
    watch = StagingWatch(
        "input data",
        TreeFacts("", "b", "k", 100, 1000 * 10**6),
        said.append,
        lambda: None,
        lambda: next(clock),
    )
    watch(1, 10 * 10**6)
    watch(25, 250 * 10**6)
    watch(30, 300 * 10**6)
    watch(0, 0)
    assert said == [
        "input data: 25 of 100 files, 250.0 MB of 1.0 GB, about 16 s left",
        "input data: waiting for another job of this machine that stages the same",
    ]
