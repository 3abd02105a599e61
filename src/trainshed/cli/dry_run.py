"""A launch plan as a person reads it: what all nodes and processes share once, then what is each one's own."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import yaml

__all__ = ["describe_plan", "render_plan"]

# Made up for the plan, or told by another part of it.
_LEFT_OUT = frozenset(
    {
        "job_id",
        "workspace_id",
        "attempt",
        "code_bucket",
        "code_prefix",
        "node_index",
        "node_count",
        "world_size",
        "files",
        "peers",
        "processes",
    }
)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they are."""

    def ignore_aliases(self, data: Any) -> bool:
        """A reader wants the value, not a reference to it."""
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def render_plan(answer: dict[str, Any]) -> str:
    """The plan as YAML."""
    shown = describe_plan(answer)
    return yaml.dump(shown, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=4096)


def describe_plan(answer: dict[str, Any]) -> dict[str, Any]:
    """The plan without its repetitions and without what is empty; `--json` has it as it is."""
    launches = answer["launch"]
    processes = [process for launch in launches for process in launch["processes"]]
    variables = _common([process["variables"] for process in processes])
    files = _common([_files_of(launch) for launch in launches])
    settings = _common([_settings_of(launch) for launch in launches])
    nodes = [
        {
            "node": launch["node_index"],
            **(launch["peers"][launch["node_index"]] if launch["peers"] else {}),
            **_without(_settings_of(launch), settings),
            **_named("files", _without(_files_of(launch), files)),
            "processes": [
                {
                    "rank": process["rank"],
                    "command": shlex.join(process["arguments"]),
                    "directory": process["directory"],
                    **_named("variables", _without(process["variables"], variables)),
                }
                for process in launch["processes"]
            ],
        }
        for launch in launches
    ]
    return {
        "world": f"{_count(len(processes), 'process', 'es')} on {_count(len(nodes), 'node', 's')}",
        "flavor": _filled(answer["flavor"]),
        **_named("notes", answer["notes"]),
        "shared": {**settings, "variables": variables, **_named("files", files)},
        "nodes": nodes,
    }


def _count(number: int, word: str, ending: str) -> str:
    return f"{number} {word}{'' if number == 1 else ending}"


def _files_of(launch: dict[str, Any]) -> dict[str, Any]:
    return {file["path"]: file["content"] for file in launch["files"]}


def _settings_of(launch: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in launch.items() if name not in _LEFT_OUT}
    # A limit of 0 is none.
    return _filled(
        {**kept, "limits": _filled(launch["limits"]), "environment": _filled(launch["environment"])}
    )


def _common(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    first, *others = parts
    return {
        name: value
        for name, value in first.items()
        if all(name in other and other[name] == value for other in others)
    }


def _without(part: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name not in shared}


def _filled(part: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if value not in (0, "", None, [], {})}


def _named(name: str, value: Any) -> dict[str, Any]:
    return {name: value} if value else {}
