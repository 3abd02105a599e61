"""Facts of the site that a runner needs beside the launch plan."""

from __future__ import annotations

import json
from dataclasses import dataclass

from trainshed.model.home import RunFolder
from trainshed.model.launch_plan import NodeLaunch, from_json
from trainshed.model.ssh import KEY_NAMES

__all__ = ["PlatformPort", "Site", "read_launch", "read_secrets", "read_site"]


@dataclass(frozen=True)
class PlatformPort:
    """A port of the platform that a job with network `platform` may reach under the same number."""

    port: int
    host: str


@dataclass(frozen=True)
class Site:
    """Where the store, the environments and the platform are, as seen from this machine."""

    store_url: str
    environments: str
    ports: tuple[PlatformPort, ...] = ()
    # The FIFO that wakes the control loop, or empty where there is none.
    doorbell: str = ""
    # Set where the runner is root: the unprivileged user id of the job's workspace.
    uid: int | None = None
    # Where the runner is root: the user id as which packages are installed.
    install_uid: int = 199999
    allow_unsandboxed: bool = False
    log_segment_bytes: int = 16 * 1024 * 1024
    # Room on the disk that jobs must leave to the platform.
    disk_reserve_bytes: int = 512 << 20
    # How much of what a job leaves in its working folders is kept; 0 is nothing.
    leftovers_bytes: int = 0
    # How many bytes of checkpoints a node may keep from attempt to attempt; 0 is no limit.
    checkpoint_bytes: int = 0
    # How often checkpoints are brought home while the job trains; 0 is only at its end, where nothing is lost by that.
    checkpoint_seconds: int = 0
    # How many seconds this machine's clock is behind the platform's.
    clock_lag: float = 0.0
    # Where trees of inputs are kept for the next job, or empty where every job gets copies.
    input_cache: str = ""
    # Folders of this machine that jobs may read.
    host_folders: tuple[str, ...] = ()
    # Where the homes and the data of the workspace lie, and how much they may hold; 0 is no limit.
    kept_folders: str = ""
    kept_quota_bytes: int = 0
    # The permissions of folders that are made there.
    kept_mode: int = 0o755
    # Where the platform speaks TLS: a file with the CAs that jobs trust, and the platform's name inside a job.
    ca_bundle: str = ""
    host_name: str = ""
    # Whether what the runner notes must outlive a crash of the machine. After one of a cluster's node nobody reads it.
    is_durable: bool = True
    # The machine's name, where the platform is on another one.
    machine: str = ""
    # How long a store that is away is waited for.
    store_patience: float = 30 * 60.0


def read_site(folder: RunFolder) -> Site:
    """The site's facts, as the engine left them in the run folder."""
    return from_json(Site, json.loads(folder.site.read_text("utf-8")))


def read_launch(folder: RunFolder) -> NodeLaunch:
    """The launch plan of this node."""
    return from_json(NodeLaunch, json.loads(folder.launch.read_text("utf-8")))


def read_secrets(folder: RunFolder) -> dict[str, str]:
    """The values of the secret variables; empty when they were removed already. Keys for ssh are none of them."""
    try:
        values: dict[str, str] = json.loads(folder.secrets.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    return {name: value for name, value in values.items() if name not in KEY_NAMES}
