"""Code that comes with the plan lies where it would have been staged, or is left to the staging."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from trainshed.model.home import RunFolder
from trainshed.runner.remote.carried_code import write_code


def carried(path: str, text: str = "x", *, is_program: bool = False) -> tuple[str, bool, str]:
    return path, is_program, base64.b64encode(text.encode()).decode()


def test_files_have_their_content_and_their_modes(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_code(
            RunFolder(tmp_path),
            [carried("train.py", "print(1)\n"), carried("lib/deep/run.sh", "#!/bin/sh\n", is_program=True)],
        )
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    code = tmp_path / "root" / "code"
    assert (code / "train.py").read_text() == "print(1)\n"
    modes = {path.name: path.stat().st_mode & 0o777 for path in code.rglob("*")}
    assert modes == {"train.py": 0o644, "lib": 0o755, "deep": 0o755, "run.sh": 0o755}
    assert RunFolder(tmp_path).code_here.exists()


@pytest.mark.parametrize("path", ["../out", "/etc/x", "a//b", "a/../../b", ""])
def test_a_path_that_leads_elsewhere_is_not_written(tmp_path: Path, path: str) -> None:
    folder = RunFolder(tmp_path / "run")
    write_code(folder, [carried(path)])
    assert not folder.code_here.exists()
    assert [found for found in tmp_path.rglob("*") if found.is_file()] == []


def test_names_that_are_a_file_and_a_folder_are_left_to_the_staging(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    write_code(folder, [carried("a"), carried("a/b")])
    assert not folder.code_here.exists()
    write_code(RunFolder(tmp_path / "none"), [])
    assert not (tmp_path / "none").exists()
