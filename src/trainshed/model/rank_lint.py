"""Finds a mistake that launch scripts for one server make on several: every server counts its ranks from 0."""

from __future__ import annotations

import re

__all__ = ["lint_ranks"]

_ASSIGNMENT = re.compile(r"^\s*(?:export\s+)?RANK_ID=(?P<value>[^\s;&#]+)", re.MULTILINE)
# What a script can count a node's first rank with.
_NODE_WORDS = re.compile(
    r"NODE|SERVER|ROLE_IDX|TASK_INDEX|WORKER_INDEX|RANK_START|RANK_OFFSET|START|OFFSET|BASE|FIRST|HOST",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"\"?\$?\{?[A-Za-z_]?\w*\}?\"?")


def lint_ranks(text: str, name: str, nodes: int) -> list[str]:
    """Warnings about lines of a shell script that give the same ranks on every node; none for a single node."""
    if nodes < 2:
        return []
    warnings = []
    for match in _ASSIGNMENT.finditer(text):
        value = match["value"]
        if _NODE_WORDS.search(value) or not _PLAIN.fullmatch(value):
            continue
        if value.strip("\"'").lstrip("$").strip("{}") == "RANK_ID":
            continue
        line = text.count("\n", 0, match.start("value")) + 1
        warnings.append(
            f"{name}:{line} sets RANK_ID={value} on every one of the {nodes} nodes, so their ranks are the same. "
            "Count from the node's first rank, for example RANK_ID=$((NODE_RANK * DEVICE_NUM + i))."
        )
    return warnings
