from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainshed.model.errors import NotFound
from trainshed.runner.environment import install_box, interpreter
from trainshed.runner.environment.interpreter import find_interpreter, find_uv


@pytest.fixture(autouse=True)
def forget() -> None:
    """Every test looks anew."""
    interpreter._search.cache_clear()


def test_the_platforms_own_interpreter_is_the_real_one_behind_its_environment() -> None:
    own = find_interpreter()
    assert own.version == ".".join(map(str, sys.version_info[:3]))
    assert own.prefix == Path(os.path.realpath(sys.base_prefix))
    assert not own.executable.is_symlink()
    assert find_interpreter(own.version) is find_interpreter(own.minor) is own


def test_a_missing_version_is_refused_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    with pytest.raises(NotFound, match=r"There is no Python 3\.5") as caught:
        find_interpreter("3.5")
    assert "Install it" in caught.value.hint


def test_the_newest_fitting_version_of_pyenv_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = find_interpreter()
    for version in ("3.99.2", "3.99.10", "3.99.11-debug", "3.9.9"):
        target = tmp_path / "versions" / version / "bin" / "python"
        target.parent.mkdir(parents=True)
        target.write_text(
            f'#!/bin/sh\nexec {own.executable} -I -S -c "import json; '
            f"print(json.dumps(['$0', '/{version}', '{version}', 'cpython', 'linux']))\"\n"
        )
        target.chmod(0o755)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert find_interpreter("3.99").version == "3.99.10"
    assert find_interpreter("3.99.2").version == "3.99.2"


def test_uv_is_there_and_runs() -> None:
    answer = subprocess.run(
        [str(find_uv()), "--version"], capture_output=True, text=True, timeout=120, check=True
    )
    assert answer.stdout.startswith("uv ")


def test_what_runs_inside_an_installation_is_written_for_old_interpreters() -> None:
    ast.parse(install_box._INSIDE, feature_version=(3, 7))
