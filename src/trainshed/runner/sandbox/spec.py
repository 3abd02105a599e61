"""What a sandbox is made of: plain data, filled in by the runner."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trainshed.model.launch_plan import GeneratedFile, Limits, Peer

__all__ = [
    "Forward",
    "Mount",
    "OverlayMount",
    "RankStarted",
    "SandboxEnded",
    "SandboxProcess",
    "SandboxService",
    "SandboxSpec",
    "Usage",
]


@dataclass(frozen=True)
class Mount:
    """A folder or file of the host that the job sees at `target`."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True)
class OverlayMount:
    """A read-only tree that the job may change without changing it: its writes go to `upper`.

    `upper` and `work` lie on one file system, below the run folder, and belong to this job alone.
    """

    lower: Path
    upper: Path
    work: Path
    target: str


@dataclass(frozen=True)
class Forward:
    """A door in the network wall: 127.0.0.1:`port` inside leads to `host`:`to_port` outside."""

    port: int
    host: str
    to_port: int


@dataclass(frozen=True)
class SandboxSpec:
    """Everything that one node of a job may see and use."""

    run_root: Path
    mounts: tuple[Mount, ...] = ()
    overlays: tuple[OverlayMount, ...] = ()
    files: tuple[GeneratedFile, ...] = ()
    hostname: str = "trainshed"
    network: Literal["none", "platform", "open"] = "none"
    forwards: tuple[Forward, ...] = ()
    # All nodes of the job, by which this one knows the others' names.
    peers: tuple[Peer, ...] = ()
    # A network that other sandboxes share, as a descriptor of its namespace; its doors are not ours then.
    shared_network: int = -1
    # Names that the job can use beside those of its loopback: (address, name).
    hosts: tuple[tuple[str, str], ...] = ()
    limits: Limits = field(default_factory=Limits)
    inside_uid: int = 1000
    inside_gid: int = 1000
    user_name: str = "trainshed"
    home: str = "/home/trainshed"
    # Set when the platform runs as root: the unprivileged ids that the job's processes have on the host.
    outside_uid: int | None = None
    outside_gid: int | None = None
    devices: tuple[Path, ...] = ()
    interpreter_prefix: Path | None = None
    # Mounts that other jobs see too: files made for this job are shown over them, not written into them.
    shared_targets: tuple[str, ...] = ()
    # Whether the job may change its own /etc.
    has_writable_etc: bool = False
    allow_unsandboxed: bool = False


@dataclass(frozen=True)
class SandboxProcess:
    """One rank to start: what to run, with which variables, where, and the spool file of its output."""

    rank: int
    arguments: tuple[str, ...]
    variables: dict[str, str]
    directory: str
    log: Path


@dataclass(frozen=True)
class SandboxService:
    """A program of the platform's inside the sandbox, started when the first connection comes to its port.

    It gets the listening socket as descriptor 3 and `variables`, marshalled, as its standard input; its own are
    empty. Its end ends nothing. A `listener` is a socket that listens already, made before the sandbox: whoever
    connects early waits instead of being refused. The sandbox takes it over at its start.
    """

    address: str
    port: int
    arguments: tuple[str, ...]
    variables: dict[str, str]
    log: Path
    listener: socket.socket | None = None


@dataclass(frozen=True)
class RankStarted:
    """A rank's process has begun. `pid` is its number inside the sandbox."""

    rank: int
    pid: int
    time: float


@dataclass(frozen=True)
class SandboxEnded:
    """Every process of the sandbox is gone. `message` is empty when it ended as it should."""

    message: str = ""


@dataclass(frozen=True)
class Usage:
    """What the job's processes have used so far, all ranks together."""

    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    peak_memory_bytes: int = 0
    processes: int = 0
