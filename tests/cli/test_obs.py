"""`trainshed obs` as people type it, against a real store process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import store_server
from trainshed.cli.main import cli

server = store_server.server


@pytest.fixture
def run(server: Any) -> Any:
    """Run the command in this process: a process each would take most of the time."""

    def run(*arguments: str | Path, data: bytes | None = None, code: int = 0) -> str:
        done = CliRunner().invoke(
            cli,
            ["obs", *map(str, arguments)],
            input=data or b"",
            env=server.environment(),
            prog_name="trainshed",
        )
        assert done.exit_code == code, done.output
        return done.output

    return run


@pytest.fixture
def bucket(run: Any) -> str:
    name = f"b-{uuid.uuid4().hex[:12]}"
    assert f"Made obs://{name}/" in run("mb", f"obs://{name}")
    return name


def test_the_whole_walk(run: Any, bucket: str, tmp_path: Path) -> None:
    source = tmp_path / "data"
    (source / "sub").mkdir(parents=True)
    (source / "empty").mkdir()
    (source / "a.txt").write_text("alpha")
    (source / "sub/b.bin").write_bytes(os.urandom(2_000_000))
    place = f"obs://{bucket}"
    assert "2 files" in run("cp", "-r", source, f"{place}/in")
    assert "2 unchanged" in run("sync", source, f"{place}/in/")
    assert run("cat", f"{place}/in/a.txt") == "alpha"
    listing = run("ls", f"{place}/in")
    assert [line.split()[-1] for line in listing.splitlines()] == [
        f"{place}/in/a.txt",
        f"{place}/in/empty/",
        f"{place}/in/sub/",
    ]
    entries = json.loads(run("ls", "--json", "-r", place))
    assert [entry["url"] for entry in entries] == [
        f"{place}/in/a.txt",
        f"{place}/in/empty/",
        f"{place}/in/sub/b.bin",
    ]
    assert entries[0]["size"] == 5
    assert f"{place}/" in run("ls")
    run("cp", "-r", f"{place}/in/", f"{place}/copy/")
    run("cp", f"{place}/in/a.txt", f"{place}/copy/again/")
    assert run("cat", f"{place}/copy/again/a.txt") == "alpha"
    run("cp", "-r", f"{place}/copy", tmp_path / "back")
    assert (tmp_path / "back/sub/b.bin").read_bytes() == (source / "sub/b.bin").read_bytes()
    assert (tmp_path / "back/empty").is_dir()
    run("cp", f"{place}/in/a.txt", tmp_path / "back")
    run("cp", f"{place}/in/a.txt", tmp_path / "renamed")
    assert (tmp_path / "back/a.txt").read_text() == (tmp_path / "renamed").read_text() == "alpha"
    run("cp", source / "a.txt", f"{place}/single")
    run("cp", source / "a.txt", f"{place}/")
    run("cp", "-", f"{place}/piped", data=b"\0\xffraw")
    assert run("cp", f"{place}/single", "-") == "alpha"
    assert "1 removed" in run("sync", f"{place}/in", tmp_path / "back", "--delete")
    assert "Made" in run("mkdir", f"{place}/new/folder")
    assert run("ls", f"{place}/new/").split() == [f"{place}/new/folder/"]
    run("rm", f"{place}/new/folder/")
    run("rm", f"{place}/single")
    assert "not empty" in run("rb", place, code=1)
    run("rm", "-r", place)
    assert run("ls", place) == ""


def test_mistakes_are_told_with_the_next_step(run: Any, bucket: str, tmp_path: Path) -> None:
    place = f"obs://{bucket}"
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    for arguments, words in (
        (("cp", tmp_path / "none", f"{place}/x"), "no file or folder"),
        (("cp", tmp_path / "file", "obs://no-such-bucket/x"), "trainshed obs mb no-such-bucket"),
        (("cp", "-r", tmp_path / "folder", "obs://no-such-bucket/x"), "no bucket"),
        (("sync", tmp_path / "folder", "obs://no-such-bucket/x"), "no bucket"),
        (("sync", tmp_path / "none", f"{place}/x"), "no folder"),
        (("cp", tmp_path / "folder", f"{place}/x"), "-r"),
        (("cp", f"{place}/folder/", tmp_path), "-r"),
        (("cp", f"{place}/none", tmp_path / "t"), "no object"),
        (("cp", "-r", f"{place}/none/", tmp_path / "t"), "no folder"),
        (("cp", "-r", f"{place}/none/", f"{place}/x/"), "nothing in"),
        (("cp", tmp_path / "file", tmp_path / "other"), "Both sides are local"),
        (("sync", tmp_path / "file", tmp_path / "other"), "Both sides are local"),
        (("cp", "-", f"{place}/folder/"), "is a folder"),
        (("cat", f"{place}/none"), "no object"),
        (("cat", f"{place}/"), "is a folder"),
        (("ls", f"{place}/none"), "nothing at"),
        (("ls", "obs://no-such-bucket"), "no bucket"),
        (("ls", "obs://B/"), "not a bucket name"),
        (("rm", f"{place}/none"), "no object"),
        (("rm", place), "is a bucket"),
        (("rm", "-r", f"{place}/none/"), "nothing in"),
        (("mkdir", place), "obs mb"),
        (("mb", place), "already"),
        (("mb", f"{place}/key"), "more than a bucket"),
        (("rb", "obs://no-such-bucket"), "no bucket"),
    ):
        output = run(*arguments, code=1)
        assert output.startswith("Error: ") and words in output, (arguments, output)


def test_a_folder_is_not_removed_by_accident(run: Any, bucket: str) -> None:
    run("mkdir", f"obs://{bucket}/f")
    run("cp", "-", f"obs://{bucket}/f/x", data=b"1")
    assert "not empty" in run("rm", f"obs://{bucket}/f/", code=1)


def test_names_cannot_steer_the_terminal(run: Any, bucket: str) -> None:
    run("cp", "-", f"obs://{bucket}/evil\x1b[31m", data=b"1")
    assert "\\x1b[31m" in run("ls", f"obs://{bucket}")


def test_pipes_carry_any_bytes(server: Any, bucket: str) -> None:
    data = bytes(range(256)) * 10_000
    done = server.cli("cp", "-", f"obs://{bucket}/raw", data=data)
    assert done.returncode == 0 and b"2.6 MB" in done.stdout, done.stderr
    done = server.cli("cat", f"obs://{bucket}/raw")
    assert done.stdout == data and done.stderr == b""
    done = server.cli("cat", f"obs://{bucket}/none")
    assert done.returncode == 1 and done.stdout == b"" and b"no object" in done.stderr


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from trainshed.cli.obs import obs; obs(['--help'], standalone_mode=False);"
        "print([name for name in ('httpx', 'rich', 'pydantic', 'sqlalchemy') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.endswith("[]\n")
