"""The sandbox: runs one node of a job, all its ranks, walled off from the host and from other jobs."""

from __future__ import annotations

from trainshed.runner.sandbox.control_group import remove_stale_groups
from trainshed.runner.sandbox.namespace import claim_namespace
from trainshed.runner.sandbox.sandbox import Event, Sandbox
from trainshed.runner.sandbox.spec import (
    Forward,
    Mount,
    OverlayMount,
    RankStarted,
    SandboxEnded,
    SandboxProcess,
    SandboxService,
    SandboxSpec,
    Usage,
)

__all__ = [
    "Event",
    "Forward",
    "Mount",
    "OverlayMount",
    "RankStarted",
    "Sandbox",
    "SandboxEnded",
    "SandboxProcess",
    "SandboxService",
    "SandboxSpec",
    "Usage",
    "claim_namespace",
    "remove_stale_groups",
]
