from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainshed.model.engines import EnginePreset
from trainshed.model.errors import InvalidInput, NotFound
from trainshed.runner.environment import resolution
from trainshed.runner.environment.failure import EnvironmentFailed
from trainshed.runner.environment.resolution import resolve

Log = Callable[[bytes], None]


def test_nothing_to_resolve_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolution, "InstallBox", None)
    environment = resolve(EnginePreset("python"), "# only a comment\n", folder=tmp_path / "e")
    assert environment.packages == ()
    assert len(environment.digest) == 64
    assert environment == resolve(EnginePreset("python"), None, folder=tmp_path / "e")


def test_an_engine_and_requirements_become_one_exact_set(tmp_path: Path, wheelhouse: Any, log: Log) -> None:
    wheelhouse.add_wheel("alpha", "1.0", requires="gamma<2")
    wheelhouse.add_wheel("alpha", "2.0", requires="gamma<2")
    for version in ("1.5", "2.0"):
        wheelhouse.add_wheel("gamma", version)
    engine = EnginePreset("mine", packages=("alpha==1.0",))
    environment = resolve(engine, "gamma>=1\n", folder=tmp_path / "e", log=log)
    assert environment.packages == ("alpha==1.0", "gamma==1.5")
    assert environment.engine == "mine"
    other = resolve(
        EnginePreset("other", packages=("gamma==1.5", "alpha==1.0")), folder=tmp_path / "e", log=log
    )
    assert other.digest == environment.digest, "the digest is of the set, not of how it was asked for"
    assert resolve(engine, "alpha\ngamma<1.6", folder=tmp_path / "e").digest == environment.digest


def test_an_engine_alone_is_resolved_once(
    tmp_path: Path, wheelhouse: Any, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheelhouse.add_wheel("alpha", "1.0")
    engine = EnginePreset("mine", packages=("alpha",))
    first = resolve(engine, folder=tmp_path / "e", log=log)
    monkeypatch.setattr(resolution, "InstallBox", None)
    assert resolve(engine, folder=tmp_path / "e") == first


def test_a_conflict_is_told_in_one_line_with_the_whole_output_beside_it(
    tmp_path: Path, wheelhouse: Any, log: Log, lines: list[str]
) -> None:
    wheelhouse.add_wheel("alpha", "1.0", requires="gamma<2")
    wheelhouse.add_wheel("gamma", "1.0")
    with pytest.raises(EnvironmentFailed) as caught:
        resolve(EnginePreset("python"), "alpha\ngamma==2.0\n", folder=tmp_path / "e", log=log)
    assert "gamma==2.0" in caught.value.message and "\n" not in caught.value.message
    assert "gamma==2.0" in caught.value.output
    assert any("gamma==2.0" in line for line in lines)


def test_a_package_without_a_wheel_is_resolved_without_harm(
    tmp_path: Path, wheelhouse: Any, log: Log, lines: list[str]
) -> None:
    wheelhouse.add_source("only-source".replace("-", "_"), "result['text'] = 'x'")
    environment = resolve(EnginePreset("python"), "only_source\n", folder=tmp_path / "e", log=log)
    assert environment.packages == ("only-source==1.0",)
    assert not [line for line in lines if "error" in line], "a first try that failed is no news"
    assert not list((tmp_path / "e/work/private").iterdir())


def test_bad_requirements_and_versions_are_refused(tmp_path: Path, wheelhouse: Any) -> None:
    with pytest.raises(InvalidInput):
        resolve(EnginePreset("python"), "-e .\n", folder=tmp_path / "e")
    with pytest.raises(EnvironmentFailed):
        resolve(EnginePreset("python"), "six===\n", folder=tmp_path / "e")
    with pytest.raises(NotFound, match=r"Python 3\.4"):
        resolve(EnginePreset("old", python="3.4"), folder=tmp_path / "e")
