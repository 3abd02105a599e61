"""How a boot file or a command becomes the arguments of a process."""

from __future__ import annotations

from typing import Any

from trainshed.dialects.world import WorldNode

__all__ = ["ENVIRONMENT_PATH", "TOOLS_PATH", "boot_arguments", "command_of"]

ENVIRONMENT_PATH = "/opt/environment"
# Programs of the platform that a job finds on its PATH.
TOOLS_PATH = "/opt/trainshed/shims/bin"


def boot_arguments(boot: str) -> tuple[str, ...]:
    """The program that runs a boot file, and the file."""
    if boot.endswith(".sh"):
        return "/bin/bash", boot
    return f"{ENVIRONMENT_PATH}/bin/python", boot


def command_of(spec: dict[str, Any], node: WorldNode) -> tuple[str, ...]:
    """The command of a node: the first one may have another than the rest."""
    command = spec["command"]
    if node.index and spec.get("worker_command"):
        command = spec["worker_command"]
    return "/bin/bash", "-c", command
