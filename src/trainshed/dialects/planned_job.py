"""What a dialect is told of a job, and what it tells back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainshed.model.flavor import Flavor
from trainshed.model.launch_plan import (
    Environment,
    GeneratedFile,
    InputFolder,
    KeptFolder,
    LogObject,
    OutputFolder,
)

__all__ = ["NodeView", "PlannedJob", "RankView"]


@dataclass(frozen=True)
class PlannedJob:
    """What a dialect needs to know of a job to plan its launch. `spec` is the job's public form."""

    id: str
    name: str
    workspace_id: str
    spec: dict[str, Any]
    flavor: Flavor
    attempt: int
    code_bucket: str
    code_prefix: str
    environment: Environment
    rehearsal: bool = False
    # Variables that every process gets from the platform (endpoints), and names of secret ones.
    platform_variables: dict[str, str] = field(default_factory=dict)
    credential_names: tuple[str, ...] = ()
    # The name of the user who submitted the job, and of the workspace.
    owner: str = "trainshed"
    workspace: str = "default"

    @property
    def is_command(self) -> bool:
        """Whether each node runs one shell command instead of a boot file per device."""
        return bool(self.spec.get("command"))

    @property
    def runs_on_cpu(self) -> bool:
        """Whether the processes compute on the CPU, because there is nothing else or because it is a rehearsal."""
        return self.rehearsal or self.flavor.kind == "cpu"


@dataclass(frozen=True)
class RankView:
    """What one process sees: its command, its working folder, and the dialect's variables."""

    arguments: tuple[str, ...]
    directory: str
    variables: dict[str, str]


@dataclass(frozen=True)
class NodeView:
    """What a dialect shows on one node. Everything else in a launch plan is the same for all dialects."""

    code_path: str
    ranks: tuple[RankView, ...]
    inputs: tuple[InputFolder, ...] = ()
    outputs: tuple[OutputFolder, ...] = ()
    files: tuple[GeneratedFile, ...] = ()
    folders: tuple[str, ...] = ()
    kept: tuple[KeptFolder, ...] = ()
    code_links: str = ""
    log_objects: tuple[LogObject, ...] = ()
    user: str = "trainshed"
    uid: int = 1000
    home: str = "/home/trainshed"
    # Seconds that the node is held open once its processes only sleep.
    hold: int = 0
    # Whether the job may write to /etc, /opt, /usr/local and /var, into a layer of its own.
    has_system_layer: bool = False
