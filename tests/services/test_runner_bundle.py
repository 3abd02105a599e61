"""The runner as one file: the same every time, and enough for a Python that has nothing else."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from trainshed.engines.engine import EXIT_NO_PYTHON, EXIT_UNFIT
from trainshed.model.errors import NotFound
from trainshed.model.home import Home
from trainshed.runner.remote.unpack import unpack
from trainshed.services.remote_start import render_start_script
from trainshed.services.runner_bundle import (
    build_bundle,
    find_bundle,
    find_old_bundle,
    find_uv_for,
    write_bundle,
)

PYTHON = os.path.realpath(sys.executable)


def test_the_same_installation_gives_the_same_bytes(home: Home) -> None:
    first = find_bundle(home)
    assert first.digest == hashlib.sha256(first.path.read_bytes()).hexdigest()
    assert build_bundle() == first.path.read_bytes()
    assert find_bundle(home) == first


def test_a_bare_python_runs_it(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "runner.pyz")
    done = _run(["-s", str(bundle.path), "--help"], tmp_path)
    assert done.returncode == 0 and b"--node" in done.stdout, done.stderr
    [folder] = tmp_path.glob("runner-*")
    assert (folder / "trainshed/_shims/trainshed/__init__.py").is_file()
    assert os.access(folder / "trainshed/_shims/bin/horovodrun", os.X_OK)
    names = zipfile.ZipFile(bundle.path).namelist()
    assert not any("services" in name or name.endswith(".pyc") for name in names)


def test_jobs_that_waited_through_an_update_get_the_runner_that_they_were_submitted_with(home: Home) -> None:
    home.run.mkdir(parents=True, exist_ok=True)
    old = home.run / f"runner-{'0' * 12}-{'a' * 64}.pyz"
    old.write_bytes(b"an older runner")
    current = find_bundle(home)
    assert find_old_bundle(home, "a" * 64).path == old
    assert find_old_bundle(home, "") == find_old_bundle(home, current.digest) == current
    with pytest.raises(NotFound):
        find_old_bundle(home, "b" * 64)
    os.utime(old, (0, 0))
    current.path.unlink()
    find_bundle(home)
    assert not old.exists()


def test_an_unpacking_that_was_killed_is_done_again(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "runner.pyz")
    half = tmp_path / f"runner-{bundle.digest[:16]}"
    (half / "trainshed").mkdir(parents=True)
    assert unpack(bundle.path) == half and (half / "complete").exists()
    assert (half / "trainshed/durable.py").exists()


def test_an_unpacking_does_not_need_the_memo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = write_bundle(tmp_path / "runner.pyz")
    monkeypatch.setattr("trainshed.runner.remote.unpack._MEMO_SECONDS", 0)
    folder = unpack(bundle.path)
    assert (folder / "complete").exists() and (folder / "trainshed/durable.py").exists()


def test_uv_is_only_given_to_machines_that_can_run_it() -> None:
    assert os.access(find_uv_for(os.uname().machine), os.X_OK)
    with pytest.raises(NotFound):
        find_uv_for("vax")


@pytest.mark.parametrize(
    ("python", "code", "words"),
    [
        ("no-such-python", EXIT_NO_PYTHON, "there is no no-such-python"),
        ("old-python", EXIT_NO_PYTHON, "needs 3.11 or newer"),
        (PYTHON, EXIT_UNFIT, "not a folder of this user alone"),
    ],
)
def test_a_machine_that_is_not_fit_says_why(tmp_path: Path, python: str, code: int, words: str) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    old = tools / "old-python"
    # A Python that says of itself to be older.
    old.write_text(
        f"#!/bin/sh\nshift 2\nprogram=$1; shift\n"
        f'exec {PYTHON} -c "import sys; sys.version_info = (3, 6, 8)\n$program" "$@"\n'
    )
    old.chmod(0o755)
    (tmp_path / f"trainshed-{os.geteuid()}").mkdir(mode=0o700)
    (tmp_path / f"trainshed-{os.geteuid()}").chmod(0o777)
    done = subprocess.run(
        ["/bin/sh", "-c", render_start_script("http://127.0.0.1:1", "0" * 64)],
        env={"PATH": f"{tools}:/usr/bin:/bin", "TMPDIR": str(tmp_path), "TRAINSHED_PYTHON": python},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, words in done.stderr.decode()) == (code, True), done.stderr


def test_a_runner_that_is_here_already_is_started_in_the_same_process(tmp_path: Path) -> None:
    root = tmp_path / f"trainshed-{os.geteuid()}"
    root.mkdir(mode=0o700)
    bundle = write_bundle(tmp_path / "runner.pyz")
    bundle.path.rename(root / f"runner-{bundle.digest[:16]}.pyz")
    folder = unpack(root / f"runner-{bundle.digest[:16]}.pyz")
    assert list(folder.glob("methods.*"))
    # What else is on this machine's path is no part of the runner.
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "__init__.py").write_text("raise SystemExit('a stranger')")
    with subprocess.Popen(
        ["/bin/sh", "-c", render_start_script("http://127.0.0.1:1", bundle.digest)],
        env={
            "PATH": "/usr/bin:/bin",
            "TMPDIR": str(tmp_path),
            "TRAINSHED_PYTHON": PYTHON,
            "PYTHONPATH": str(tmp_path),
        },
        stderr=subprocess.PIPE,
    ) as node:
        assert node.stderr is not None
        assert b"cannot be reached" in node.stderr.readline()
        line = Path(f"/proc/{node.pid}/cmdline").read_bytes()
        assert b"\0-S\0-c\0# trainshed.runner" in line
        node.terminate()
        assert node.wait(90) == 128 + 15, node.stderr.read()


def test_the_start_script_holds_no_secret_and_survives_a_shell(tmp_path: Path) -> None:
    script = render_start_script("https://shed.example:7480", "ab" * 32, "-----BEGIN CERTIFICATE-----\nx'y\n")
    assert "tsr_" not in script
    checked = subprocess.run(["/bin/sh", "-n", "-c", script], capture_output=True, timeout=120, check=False)
    assert checked.returncode == 0, checked.stderr


def _run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [PYTHON, *arguments],
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)},
        cwd="/",
        capture_output=True,
        timeout=120,
        check=False,
    )
