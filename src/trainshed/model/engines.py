"""Preset engines: the Python environments that a job can name instead of listing packages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainshed.model.errors import InvalidInput, NotFound, suggest

__all__ = ["PRESETS", "EnginePreset", "find_engine", "list_engines", "read_engines"]

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_PYTHON = re.compile(r"3\.[0-9]{1,2}(\.[0-9]{1,2})?")
# One requirement: a name, extras, version conditions. No options, no URLs, no paths.
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]*\])?[ 0-9A-Za-z.,*+!<>=~-]*")
_FIELDS = ("python", "packages", "description")


@dataclass(frozen=True)
class EnginePreset:
    """A named environment: a Python version (empty: the platform's own) and packages."""

    name: str
    python: str = ""
    packages: tuple[str, ...] = ()
    description: str = ""


PRESETS: tuple[EnginePreset, ...] = (
    EnginePreset("python", "", (), "Python with pip and nothing else"),
    EnginePreset("numpy", "", ("numpy",), "Python with NumPy"),
    EnginePreset("pytorch", "", ("torch==2.13.0", "numpy"), "PyTorch 2.13"),
    EnginePreset("mindspore", "", ("mindspore==2.10.0",), "MindSpore 2.10"),
    EnginePreset("paddle", "", ("paddlepaddle==3.3.1",), "PaddlePaddle 3.3"),
    EnginePreset("tensorflow", "", ("tensorflow==2.21.0",), "TensorFlow 2.21"),
)


def list_engines(extra: Iterable[EnginePreset] = ()) -> list[EnginePreset]:
    """All engines by name; one of the settings file replaces the preset of its name."""
    table = {engine.name: engine for engine in (*PRESETS, *extra)}
    return [table[name] for name in sorted(table)]


def find_engine(name: str, extra: Iterable[EnginePreset] = ()) -> EnginePreset:
    """The engine of that name; an unknown one is refused with the closest known name."""
    table = {engine.name: engine for engine in list_engines(extra)}
    if name not in table:
        raise NotFound(
            f"There is no engine '{name[:80]}'.",
            hint=f"{suggest(name, table)} `trainshed engines` lists what this platform offers.",
            code="unknown_engine",
            where="engine",
        )
    return table[name]


def read_engines(tables: Mapping[str, Any], where: str = "settings.toml") -> tuple[EnginePreset, ...]:
    """The engines that a settings file adds: [engines.NAME] with python, packages and description."""
    if not isinstance(tables, Mapping):
        raise InvalidInput(
            "The setting 'engines' is a table.",
            hint="Write [engines.my-name] and packages = [...].",
            where=where,
        )
    return tuple(_read_engine(name, table, f"{where}: engines.{name}") for name, table in tables.items())


def _read_engine(name: str, table: Any, where: str) -> EnginePreset:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"'{name[:80]}' is not an engine's name.",
            hint="Use lower-case letters, digits, '.', '_' and '-'.",
            where=where,
        )
    if not isinstance(table, Mapping):
        raise InvalidInput("An engine is a table.", hint="Write packages = ['numpy'] below it.", where=where)
    for field in table:
        if field not in _FIELDS:
            raise InvalidInput(
                f"An engine has no field '{field}'.", hint=suggest(str(field), _FIELDS), where=where
            )
    python = str(table.get("python", ""))
    if python and not _PYTHON.fullmatch(python):
        raise InvalidInput(
            f"'{python[:40]}' is not a Python version.", hint='Write python = "3.11".', where=where
        )
    packages = table.get("packages", ())
    if not isinstance(packages, list | tuple):
        raise InvalidInput("The packages of an engine are a list.", where=where)
    for package in packages:
        if not isinstance(package, str) or not _PACKAGE.fullmatch(package):
            raise InvalidInput(
                f"'{str(package)[:120]}' is not a package.",
                hint="Write a name with an optional version, such as torch==2.13.0.",
                where=where,
            )
    return EnginePreset(name, python, tuple(packages), str(table.get("description", "")))
