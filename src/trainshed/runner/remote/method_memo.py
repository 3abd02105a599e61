"""The methods that Python writes for dataclasses: compiled once per machine, not at every start of a runner.

`@dataclass` writes the source of a class's methods and compiles it whenever the module is loaded. For the runner's
modules that is a third of the time that they take to load. The types of fields are compiled, too, before a launch plan can be read.
"""

from __future__ import annotations

import dataclasses
import importlib
import marshal
import sys
import typing
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


# Before the text of a type, where the others are texts of methods.
_TYPE = "type: "


def use_memo(folder: str) -> None:
    """Take the methods from what `write_memo` left in a folder; those that are not there are compiled as ever."""
    try:
        known = marshal.loads(_file(folder).read_bytes())
    except (OSError, ValueError, EOFError, TypeError):
        return

    def run(text: str, *names: dict[str, Any]) -> None:
        exec(marshal.loads(known[text]) if text in known else text, *names)

    def find(text: str, *how: Any, **more: Any) -> Any:
        code = known.get(_TYPE + text) if how[1:] == ("eval",) and not more else None
        return marshal.loads(code) if code else compile(text, *how, **more)

    # Where the modules look for `exec` and `compile` before they find Python's own.
    vars(dataclasses)["exec"] = run
    vars(typing)["compile"] = find


def write_memo(folder: str) -> None:
    """Load the runner's modules, and leave the methods of their dataclasses in a folder."""
    known: dict[str, bytes] = {}

    def run(text: str, *names: dict[str, Any]) -> None:
        known[text] = marshal.dumps(compile(text, "<string>", "exec"))
        exec(text, *names)

    def note(text: str, *how: Any, **more: Any) -> Any:
        code = compile(text, *how, **more)
        if how[1:] == ("eval",) and not more:
            known[_TYPE + text] = marshal.dumps(code)
        return code

    vars(dataclasses)["exec"] = run
    vars(typing)["compile"] = note
    for module in _MODULES:
        importlib.import_module(module)
    importlib.import_module("trainshed.runner.late_modules").load_rest()
    plan, site = (
        importlib.import_module(f"trainshed.{name}") for name in ("model.launch_plan", "runner.site")
    )
    plan.learn_types(plan.NodeLaunch, site.Site)
    _file(folder).write_bytes(marshal.dumps(known))


def _file(folder: str) -> Path:
    """Compiled code is of one version of Python."""
    return Path(folder) / f"methods.{sys.implementation.cache_tag}"
