"""Preset engines: the Python environments that a job can name instead of listing packages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainshed.model.errors import InvalidInput, NotFound, suggest

__all__ = [
    "PRESETS",
    "EngineMatch",
    "EnginePreset",
    "find_engine",
    "list_engines",
    "match_engine",
    "read_engines",
]

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_PYTHON = re.compile(r"3\.[0-9]{1,2}(\.[0-9]{1,2})?")
# One requirement: a name, extras, version conditions. No options, no URLs, no paths.
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]*\])?[ 0-9A-Za-z.,*+!<>=~-]*")
_FIELDS = ("python", "packages", "description")
# What the names of other platforms' engines have in common with a framework, and the package that makes it. The
# first that a name holds counts: `mindspore_1.7.0-cann_5.1.0-py_3.7-...`, `Horovod 0.20.0-tensorflow_2.1.0`.
_FRAMEWORKS = (
    ("mindspore", "mindspore"),
    ("paddle", "paddlepaddle"),
    ("pytorch", "torch"),
    ("torch", "torch"),
    ("tensorflow", "tensorflow-cpu"),
    ("tf", "tensorflow-cpu"),
    # Families that hold several frameworks, when no version is named beside them.
    ("ascend-powered-engine", "mindspore"),
    ("mpi", "mindspore"),
)


@dataclass(frozen=True)
class EnginePreset:
    """A named environment: a Python version (empty: the platform's own) and packages."""

    name: str
    python: str = ""
    packages: tuple[str, ...] = ()
    description: str = ""


@dataclass(frozen=True)
class EngineMatch:
    """The engine that runs for the name that was asked; `note` is empty where it is the very one."""

    engine: EnginePreset
    asked: str
    asked_version: str = ""
    note: str = ""


# setuptools: Paddle imports it and does not name it.
PRESETS: tuple[EnginePreset, ...] = (
    EnginePreset("python", "", (), "Python with pip and nothing else"),
    EnginePreset("numpy", "", ("numpy",), "Python with NumPy"),
    EnginePreset("pytorch", "", ("torch==2.13.0", "numpy"), "PyTorch 2.13"),
    EnginePreset("mindspore", "", ("mindspore==2.10.0",), "MindSpore 2.10"),
    EnginePreset("paddle", "", ("paddlepaddle==3.3.1", "setuptools"), "PaddlePaddle 3.3"),
    EnginePreset("tensorflow", "", ("tensorflow-cpu==2.21.0", "tensorboard"), "TensorFlow 2.21"),
)


def list_engines(extra: Iterable[EnginePreset] = ()) -> list[EnginePreset]:
    """All engines by name; one of the settings file replaces the preset of its name."""
    table = {engine.name: engine for engine in (*PRESETS, *extra)}
    return [table[name] for name in sorted(table)]


def find_engine(name: str, extra: Iterable[EnginePreset] = ()) -> EnginePreset:
    """The engine that runs for that name; an unknown one is refused with the closest known name."""
    return match_engine(name, extra).engine


def match_engine(name: str, extra: Iterable[EnginePreset] = ()) -> EngineMatch:
    """The engine of that name, or the nearest one for an engine's name of another platform.

    Such names say a framework and a version, in any case and order: of the engines with that framework, the one
    with the nearest version runs.
    """
    table = {engine.name: engine for engine in list_engines(extra)}
    if name in table:
        return EngineMatch(table[name], name)
    lower = name.strip().lower()
    if lower in table:
        return EngineMatch(table[lower], name)
    for word, package in _FRAMEWORKS:
        found = re.search(rf"(?<![a-z]){word}(?:paddle)?(?![a-z])(?:[-_ ]?([0-9]+(?:\.[0-9]+)*))?", lower)
        offers = [(engine, _version_of(engine, package)) for engine in table.values()]
        offers = [(engine, version) for engine, version in offers if version]
        if found and offers:
            asked = found[1] or ""
            engine, version = min(offers, key=lambda offer: (_distance(asked, offer[1]), offer[0].name))
            runs = f"{engine.name} ({package} {version})"
            note = f"The engine {name[:120]} was asked for; the nearest one here, {runs}, runs."
            return EngineMatch(engine, name, asked, note)
    raise NotFound(
        f"There is no engine '{name[:80]}'.",
        hint=f"{suggest(name, table)} `trainshed engines` lists what this platform offers.",
        code="unknown_engine",
        where="engine",
    )


def _version_of(engine: EnginePreset, package: str) -> str:
    """The version of a framework that an engine pins, or nothing."""
    for requirement in engine.packages:
        found = re.fullmatch(
            rf"{re.escape(package.removesuffix('-cpu'))}(?:-cpu)?(?:\[[^]]*\])?==([0-9][0-9.]*[0-9]).*",
            requirement,
        )
        if found:
            return found[1]
    return ""


def _distance(asked: str, offered: str) -> tuple[int, ...]:
    """How far two versions are apart, part by part. Without a wish, the newest is the nearest."""
    parts = [int(part) for part in offered.split(".")]
    if not asked:
        return tuple(-part for part in parts)
    wish = [int(part) for part in asked.split(".")]
    length = max(len(parts), len(wish))
    parts += [0] * (length - len(parts))
    wish += [0] * (length - len(wish))
    return tuple(abs(mine - theirs) for mine, theirs in zip(parts, wish, strict=True))


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
