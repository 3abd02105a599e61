"""A job's own copy of a tree, where there are no overlay mounts: faithful, watched, and only if it fits."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainshed.model.errors import HostUnfit
from trainshed.runner.sandbox import tree_copy
from trainshed.runner.sandbox.tree_copy import CopyState, copy_tree
from trainshed.runner.staging import watch_copies


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Files, folders, links, a program, odd names, something that is no file."""
    folder = tmp_path / "source"
    (folder / "deep/er").mkdir(parents=True)
    (folder / "empty").mkdir(mode=0o750)
    (folder / "deep/er/文 件").write_bytes(os.urandom(100_000))
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    os.utime(folder / "run.sh", (1_700_000_000, 1_700_000_000))
    (folder / "link").symlink_to("deep/er")
    (folder / "out").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    return folder


def copy(source: Path, target: Path, watch: tree_copy.CopyWatch) -> None:
    target.mkdir(exist_ok=True)
    descriptors = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (source, target)]
    try:
        copy_tree(*descriptors, "/job/inputs/data", watch)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def test_a_faithful_copy(source: Path, tmp_path: Path) -> None:
    states: list[CopyState] = []
    target = tmp_path / "target"
    before = len(os.listdir("/proc/self/fd"))
    copy(source, target, states.append)
    assert len(os.listdir("/proc/self/fd")) == before
    assert (target / "deep/er/文 件").read_bytes() == (source / "deep/er/文 件").read_bytes()
    assert stat.S_IMODE((target / "run.sh").stat().st_mode) == 0o755
    assert (target / "run.sh").stat().st_mtime == 1_700_000_000
    assert stat.S_IMODE((target / "empty").stat().st_mode) == stat.S_IMODE((source / "empty").stat().st_mode)
    assert os.readlink(target / "link") == "deep/er" and os.readlink(target / "out") == "/etc/passwd"
    assert not (target / "pipe").exists()
    total = 100_000 + len("#!/bin/sh\n")
    assert states[0] == CopyState("/job/inputs/data", 0, 0, 2, total)
    assert states[-1] == CopyState("/job/inputs/data", 2, total, 2, total)


def test_what_cannot_fit_is_refused_before_the_first_byte(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=10, f_frsize=4096))
    with pytest.raises(HostUnfit) as caught:
        copy(source, tmp_path / "target", lambda state: None)
    assert caught.value.code == "disk_full" and "overlay" in caught.value.hint
    assert os.listdir(tmp_path / "target") == []


def test_a_stop_ends_it_and_progress_is_said(source: Path, tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    said: list[str] = []

    def check_stop() -> None:
        raise Stopped

    watch = watch_copies(said.append, check_stop)
    watch(CopyState("/job/inputs/data", 0, 0, 2, 5_000_000))
    assert said == ["/job/inputs/data: no overlay on this machine, copying 5.0 MB"]

    def impatient(state: CopyState) -> None:
        if state.files:
            check_stop()

    with pytest.raises(Stopped):
        copy(source, tmp_path / "target", impatient)
    found = [path for path in (tmp_path / "target").rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(found) == 1


SCRIPT = """
import dataclasses, errno, json, os, sys
from pathlib import Path
from trainshed.runner.sandbox import OverlayMount, Sandbox, SandboxProcess, SandboxSpec, namespace

def refuse(*_):
    raise OSError(errno.ENODEV, "no overlay here")

namespace.mount_overlay = refuse
base = Path(sys.argv[1])
spec = SandboxSpec(
    base / "run" / "root",
    overlays=(OverlayMount(base / "tree", base / "run" / "upper", base / "run" / "work", "/job/data"),),
    outside_uid=65534 if os.geteuid() == 0 else None,
)
sandbox = Sandbox(spec)
states = []
sandbox.prepare(states.append)
command = "cat /job/data/file && echo more >> /job/data/file && cat /job/data/file && touch /job/data/new"
sandbox.start([SandboxProcess(0, ("/bin/bash", "-c", command), {}, "/", base / "run" / "logs" / "rank-0.log")])
while not sandbox.ended:
    sandbox.wait(10)
print(json.dumps([sandbox.exits[0].exit_code, dataclasses.asdict(states[-1])]))
sandbox.close()
"""


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder that an unprivileged user reaches."""
    path = Path(tempfile.mkdtemp(prefix="trainshed-copy-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_a_job_without_overlay_has_its_own_copy(base: Path) -> None:
    (base / "tree").mkdir()
    (base / "tree" / "file").write_text("stored\n")
    for name in ("run/root", "run/logs"):
        (base / name).mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, base], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    exit_code, state = json.loads(done.stdout)
    assert exit_code == 0 and (state["target"], state["files"], state["bytes"]) == ("/job/data", 1, 7)
    assert (base / "run/logs/rank-0.log").read_text() == "stored\nstored\nmore\n"
    assert (base / "tree" / "file").read_text() == "stored\n" and os.listdir(base / "tree") == ["file"]
