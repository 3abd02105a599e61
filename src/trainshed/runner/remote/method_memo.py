"""The methods that Python writes for dataclasses: compiled once per machine, not at every start of a runner.

`@dataclass` writes the source of a class's methods and compiles it whenever the module is loaded. For the runner's
modules that is a third of the time that they take to load.
"""

from __future__ import annotations

import dataclasses
import importlib
import marshal
import sys
from pathlib import Path
from typing import Any

__all__ = ["use_memo", "write_memo"]

# What a runner loads, directly and through others.
_MODULES = (
    "trainshed.runner.remote.main",
    "trainshed.runner.remote.courier",
    "trainshed.runner.remote.node_facts",
    "trainshed.runner.remote.site_files",
    "trainshed.runner.node_run",
    "trainshed.runner.salvage",
    "trainshed.store.remote.store",
)


def use_memo(folder: str) -> None:
    """Take the methods from what `write_memo` left in a folder; those that are not there are compiled as ever."""
    try:
        known = marshal.loads(_file(folder).read_bytes())
    except (OSError, ValueError, EOFError, TypeError):
        return

    def run(text: str, *names: dict[str, Any]) -> None:
        exec(marshal.loads(known[text]) if text in known else text, *names)

    # Where the module looks for `exec` before it finds Python's own.
    vars(dataclasses)["exec"] = run


def write_memo(folder: str) -> None:
    """Load the runner's modules, and leave the methods of their dataclasses in a folder."""
    known: dict[str, bytes] = {}

    def run(text: str, *names: dict[str, Any]) -> None:
        known[text] = marshal.dumps(compile(text, "<string>", "exec"))
        exec(text, *names)

    vars(dataclasses)["exec"] = run
    for module in _MODULES:
        importlib.import_module(module)
    importlib.import_module("trainshed.runner.late_modules").load_rest()
    _file(folder).write_bytes(marshal.dumps(known))


def _file(folder: str) -> Path:
    """Compiled code is of one version of Python."""
    return Path(folder) / f"methods.{sys.implementation.cache_tag}"
