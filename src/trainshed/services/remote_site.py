"""Facts of the site for runners on other machines."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from trainshed.db.jobs import JobRow
from trainshed.db.workspaces import WorkspaceRow
from trainshed.model.pools import find_pool
from trainshed.services.job_variables import remote_variables
from trainshed.services.platform import Platform
from trainshed.services.public_urls import obs_url
from trainshed.services.ssh_packages import ssh_packages_version

__all__ = ["RemoteSite", "describe_site"]


@dataclass(frozen=True)
class RemoteSite:
    """Facts of the site for a runner elsewhere; it adds the paths on its own machine."""

    obs_url: str
    ports: tuple[tuple[str, int], ...]
    host_name: str
    authority: str
    uid: int
    install_uid: int
    allow_unsandboxed: bool
    log_segment_bytes: int
    disk_reserve_bytes: int
    checkpoint_bytes: int
    # How often a node brings checkpoints home while its job trains.
    checkpoint_seconds: int
    leftovers_bytes: int
    host_folders: tuple[str, ...]
    # The packages of the ssh server, for nodes that have none.
    ssh_packages: str
    # Where the machines of the pool keep the homes and the data of the workspace, and how much they may hold.
    kept_folders: str
    kept_quota_bytes: int
    # How long and how much a node keeps for later jobs.
    caches: dict[str, float]
    # Seconds for which a platform that is away is waited for with what a job made.
    patience: float


def describe_site(
    platform: Platform, job: JobRow, network: str, workspace: WorkspaceRow | None
) -> RemoteSite:
    """What a node of this job has to know of the platform, with the network that it has there."""
    settings = platform.settings
    pool = find_pool(str(job.spec.get("pool", "")), settings.all_pools)
    variables = remote_variables(platform, network)
    doors = [urlsplit(url) for url in (variables["TRAINSHED_URL"], variables["TRAINSHED_OBS_URL"])]
    public = urlsplit(obs_url(settings)).hostname or ""
    try:
        authority = platform.home.tls_authority.read_text("ascii") if settings.serves_tls else ""
    except FileNotFoundError:
        authority = ""
    return RemoteSite(
        obs_url=obs_url(settings),
        ports=tuple((public, door.port or (443 if door.scheme == "https" else 80)) for door in doors),
        host_name=public if doors[0].scheme == "https" and network != "open" else "",
        authority=authority,
        uid=settings.job_uid_base + (workspace.number if workspace else 0),
        install_uid=settings.install_uid,
        allow_unsandboxed=settings.allow_unsandboxed,
        log_segment_bytes=settings.log_segment_mb << 20,
        disk_reserve_bytes=settings.disk_reserve_mb << 20,
        checkpoint_bytes=settings.checkpoints_gb << 30,
        checkpoint_seconds=settings.checkpoint_seconds,
        leftovers_bytes=settings.leftovers_mb << 20,
        host_folders=settings.host_folders,
        ssh_packages=ssh_packages_version(),
        kept_folders=f"{pool.shared_folder}/{job.workspace_id}" if pool.shared_folder else "",
        kept_quota_bytes=settings.kept_quota_gb << 30,
        caches={
            "input_seconds": settings.input_cache_hours * 3600.0,
            "input_bytes": float(settings.input_cache_gb << 30),
            "environment_seconds": settings.node_environment_days * 86400.0,
            "environment_bytes": float(settings.node_environment_gb << 30),
        },
        patience=settings.runner_patience_minutes * 60.0,
    )
