"""What is new in a job's working folders, which logs are found there, and what is brought home."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trainshed.model.home import RunFolder
from trainshed.model.launch_plan import Environment, NodeLaunch, OutputFolder, ProcessPlan
from trainshed.runner.launcher_logs import LauncherLogs, name_launcher_log
from trainshed.runner.leftovers import MOST_FILES, choose_leftovers, upload_leftovers
from trainshed.runner.staging import StagedFolders
from trainshed.runner.work_folders import NewFile, WorkFolder, WorkFolders
from trainshed.store import open_store
from trainshed.store.object_store import ObjectStore

Make = Callable[..., WorkFolders]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """The run folder of a node."""
    run = RunFolder(tmp_path / "run")
    (run.path / "logs").mkdir(parents=True)
    return run


@pytest.fixture
def staged(folder: RunFolder) -> StagedFolders:
    """Its staged folders: code that was copied, and one output."""
    folders = StagedFolders(folder.root)
    folders.code.mkdir(parents=True)
    folders.output("out").mkdir(parents=True)
    (folders.code / "train.py").write_text("print(1)\n")
    (folders.code / "config.json").write_text("{}")
    return folders


@pytest.fixture
def make(folder: RunFolder, staged: StagedFolders) -> Make:
    """Makes the working folders of a job that works in the given directory."""

    def make(directory: str = "/job/code", folders: tuple[str, ...] = ()) -> WorkFolders:
        launch = NodeLaunch(
            "job",
            "name",
            "space",
            1,
            0,
            1,
            1,
            "b",
            "p/",
            "/job/code",
            (ProcessPlan(0, 0, ("python",), {}, directory),),
            Environment("python", "3.11"),
            outputs=(OutputFolder("out", "bucket", "x/", "/job/outputs/out"),),
            folders=folders,
        )
        return WorkFolders(launch, folder, staged)

    return make


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """An object store with the archive's bucket."""
    opened = open_store(f"file://{tmp_path / 'store'}")
    opened.ensure_bucket(".jobs")
    return opened


def new(work: WorkFolders) -> dict[str, int]:
    """Path -> size of what is new."""
    return {file.path: file.size for file in work.new_files()}


def test_copied_code_is_told_from_what_the_job_wrote(make: Make, staged: StagedFolders) -> None:
    work = make()
    work.remember()
    (staged.code / "model.ckpt").write_bytes(b"12345")
    (staged.code / "config.json").write_text('{"changed": 1}')
    (staged.code / "logs").mkdir()
    (staged.code / "logs" / "a.txt").write_text("x")
    os.symlink("/etc/passwd", staged.code / "passwd")
    os.mkfifo(staged.code / "pipe")
    assert new(work) == {"model.ckpt": 5, "config.json": 14, "logs/a.txt": 1}
    # After a runner that was lost, another one knows as much.
    assert new(make()) == new(work)


def test_a_layer_holds_only_what_the_job_wrote(make: Make, folder: RunFolder) -> None:
    layer = folder.path / "input-layers" / "0" / "upper"
    layer.mkdir(parents=True)
    (layer / "result.csv").write_text("1,2")
    work = make()
    work.remember()
    assert new(work) == {"result.csv": 3}


def test_folders_in_which_a_process_works_count_others_do_not(make: Make, staged: StagedFolders) -> None:
    for number in (0, 1):
        (staged.root / "folders" / str(number)).mkdir(parents=True)
        (staged.root / "folders" / str(number) / f"f{number}").write_text("x")
    work = make("/home/work/workspace/device0", folders=("/cache", "/home/work/workspace"))
    work.remember()
    assert new(work) == {"f1": 1}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("log/workerlog.3", "workerlog.3"),
        ("worker_12.log", "worker_12.log"),
        ("msrun_log/scheduler.log", "scheduler.log"),
        ("logs/none_ab12/attempt_0/1/stderr.log", "torchrun-1.stderr"),
        ("out/1/rank.0/stdout", "mpirun-0.stdout"),
        ("train.log", ""),
        ("workerlog.3.bak", ""),
    ],
)
def test_names_of_launchers_logs(path: str, name: str) -> None:
    assert name_launcher_log(path) == name


def test_a_launchers_log_is_followed_as_it_grows(
    make: Make, folder: RunFolder, staged: StagedFolders
) -> None:
    now = [0.0]
    logs = LauncherLogs(make(), folder, clock=lambda: now[0])
    logs.read()
    source = staged.code / "log" / "workerlog.0"
    source.parent.mkdir()
    source.write_bytes(b"one\n")
    logs.read()
    assert not folder.file_log("workerlog.0").exists()
    now[0] = 6.0
    logs.read()
    with source.open("ab") as file:
        file.write(b"two\n")
    logs.read()
    assert folder.file_log("workerlog.0").read_bytes() == b"one\ntwo\n"
    # The launcher starts its process again, with a new file.
    source.unlink()
    source.write_bytes(b"again\n")
    logs.read()
    assert folder.file_log("workerlog.0").read_bytes() == b"one\ntwo\nagain\n"
    assert logs.tails() == {"workerlog.0": "one\ntwo\nagain\n"}


def test_a_second_runner_goes_on_behind_the_copy_of_the_first(
    make: Make, folder: RunFolder, staged: StagedFolders
) -> None:
    source = staged.code / "worker_0.log"
    source.write_bytes(b"one\n")
    LauncherLogs(make(), folder).read()
    source.write_bytes(b"one\ntwo\n")
    LauncherLogs(make(), folder).read(final=True)
    assert folder.file_log("worker_0.log").read_bytes() == b"one\ntwo\n"


def test_two_files_of_one_name_and_files_in_outputs(
    make: Make, folder: RunFolder, staged: StagedFolders
) -> None:
    for place in (staged.code / "a", staged.code / "b", staged.output("out")):
        place.mkdir(exist_ok=True)
        (place / "workerlog.0").write_text(place.name)
    LauncherLogs(make(), folder).read(final=True)
    names = sorted(path.name for path in folder.file_logs.iterdir())
    assert names == ["workerlog.0", "workerlog.0~2", "workerlog.0~3"]


def test_links_that_a_job_plants_lead_nowhere(
    make: Make, folder: RunFolder, staged: StagedFolders, tmp_path: Path
) -> None:
    secret = tmp_path / "host"
    secret.mkdir()
    (secret / "workerlog.0").write_text("secret of the host")
    os.symlink(secret, staged.code / "log")
    os.symlink(secret / "workerlog.0", staged.code / "workerlog.0")
    work = make()
    LauncherLogs(work, folder).read(final=True)
    assert not folder.file_logs.exists() and "log/workerlog.0" not in new(work)
    # A folder that becomes a link between two looks is not followed either.
    (staged.code / "d").mkdir()
    (staged.code / "d" / "workerlog.1").write_text("own")
    logs = LauncherLogs(work, folder)
    logs.read(final=True)
    (staged.code / "d" / "workerlog.1").unlink()
    (staged.code / "d").rmdir()
    (secret / "workerlog.1").write_text("secret of the host")
    os.symlink(secret, staged.code / "d")
    logs.read(final=True)
    assert folder.file_log("workerlog.1").read_text() == "own"


def test_small_files_go_first_and_limits_hold() -> None:
    place = WorkFolder(Path("/x"), "/job/code")
    files = [NewFile(place, f"f{size}", size) for size in (500, 20, 3)]
    kept, left = choose_leftovers(files, 100)
    assert ([file.size for file in kept], [file.size for file in left]) == ([3, 20], [500])
    kept, left = choose_leftovers([NewFile(place, f"f{n}", 1) for n in range(MOST_FILES + 5)], 1 << 30)
    assert (len(kept), len(left)) == (MOST_FILES, 5)
    useless = ("__pycache__/a.pyc", ".git/index", "log/workerlog.0", "new\nline", "bad\udcff", "x" * 900)
    assert choose_leftovers([NewFile(place, path, 1) for path in useless], 100) == ([], [])


def test_leftovers_come_home_without_secrets(make: Make, staged: StagedFolders, store: ObjectStore) -> None:
    work = make()
    work.remember()
    (staged.code / "env.json").write_text('{"KEY": "geheim-123"}')
    (staged.code / "big.bin").write_bytes(bytes(200))
    said: list[str] = []
    fault = upload_leftovers(work, store, "job/a/", limit=100, secrets=["geheim-123"], say=said.append)
    assert fault is None
    assert [info.key for info in store.walk(".jobs", "job/")] == ["job/a/leftovers/job/code/env.json"]
    with store.open(".jobs", "job/a/leftovers/job/code/env.json") as file:
        assert file.read() == b'{"KEY": "**********"}'
    assert "1 kept" in said[0] and "big.bin is not kept" in said[1]
    assert upload_leftovers(work, store, "other/", limit=0, secrets=(), say=said.append) is None
    assert not list(store.walk(".jobs", "other/"))
