"""A tool that the platform hosts for a job: what it shows, and where its process stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["ToolPlan", "ToolSource", "ToolState"]


@dataclass(frozen=True)
class ToolSource:
    """A folder that the tool sees below /logs: one of this machine, or one of the object store."""

    name: str
    host_path: str = ""
    bucket: str = ""
    key: str = ""


@dataclass(frozen=True)
class ToolPlan:
    """Everything that a tool's process needs to know."""

    id: str
    job_id: str
    workspace_id: str
    # The folder inside the tool's sandbox that is shown.
    folder: str
    sources: tuple[ToolSource, ...]
    store_url: str
    environments: str
    # Set where the platform is root: the user ids of the workspace's jobs and of installs.
    uid: int | None = None
    install_uid: int = 199999
    allow_unsandboxed: bool = False


@dataclass(frozen=True)
class ToolState:
    """How far a tool has come."""

    stage: Literal["installing", "starting", "ready", "failed"]
    message: str = ""
