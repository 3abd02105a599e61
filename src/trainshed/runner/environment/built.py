"""Environments that this machine has already: all that most jobs need of them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ENVIRONMENT_PATH", "MARKER", "EnvironmentPaths", "find_environment", "is_digest"]

# Where a job sees its environment, and where it is built.
ENVIRONMENT_PATH = "/opt/environment"
# The last thing that is written into an environment.
MARKER = ".trainshed.json"


@dataclass(frozen=True)
class EnvironmentPaths:
    """A built environment: its folder on this machine, and the path at which a job finds it.

    `interpreter_prefix` must be visible inside the job at the same path: the environment's python is a link
    into it.
    """

    path_on_host: Path
    python_version: str
    interpreter_prefix: Path
    target: str = ENVIRONMENT_PATH


def is_digest(text: str) -> bool:
    """Whether this can be the digest that names an environment."""
    return len(text) == 64 and not set(text) - set("0123456789abcdef")


def find_environment(digest: str, folder: Path, *, sandboxed: bool = True) -> EnvironmentPaths | None:
    """The environment of a digest, if it is there and whole."""
    if not is_digest(digest):
        return None
    target = folder / digest
    try:
        facts = json.loads((target / MARKER).read_text("utf-8"))
        if not os.path.exists(facts["executable"]):
            return None
        return EnvironmentPaths(
            target, facts["python"], Path(facts["prefix"]), ENVIRONMENT_PATH if sandboxed else str(target)
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
