"""The Slurm engine of this platform: its pools, its name in the cluster, and how nodes' logs come home."""

from __future__ import annotations

from trainshed.engines.slurm.commands import Commands
from trainshed.engines.slurm.engine import SlurmEngine
from trainshed.model.errors import TrainshedError
from trainshed.model.home import RunFolder
from trainshed.runner.homecoming import export_logs, upload_logs, upload_metrics
from trainshed.runner.log_archive import LogArchive, archive_prefix
from trainshed.runner.reporter import PlatformLog
from trainshed.runner.site import read_launch, read_secrets, read_site
from trainshed.services.platform import Platform
from trainshed.services.remote_start import remote_start
from trainshed.services.vault import derive
from trainshed.store import open_store

__all__ = ["bring_mirror_home", "platform_tag", "slurm_engine"]


def slurm_engine(platform: Platform, commands: Commands | None = None) -> SlurmEngine:
    """The engine that hands attempts to the cluster."""
    return SlurmEngine(
        platform.settings.all_pools,
        remote_start(platform),
        platform.home,
        platform.clock,
        platform=platform_tag(platform),
        commands=commands,
        bring_home=bring_mirror_home,
    )


def platform_tag(platform: Platform) -> str:
    """What tells this platform's jobs in a cluster from those of another one; the same for the home's whole life."""
    return derive(platform, "slurm-job-names").hex()[:8]


def bring_mirror_home(folder: RunFolder, ending: str = "") -> str:
    """Archive the logs and metrics that came from a node which is lost; what could not be brought, in words.

    The log's last line says why it ends there.
    """
    if not folder.launch.exists():
        # It never got its plan, so there is nothing but what the platform itself said.
        return ""
    launch, site = read_launch(folder), read_site(folder)
    secrets = list(read_secrets(folder).values())
    log = PlatformLog(folder.platform_log)
    try:
        store = open_store(site.store_url)
        prefix = archive_prefix(launch.job_id, launch.attempt, launch.node_index)
        archive = LogArchive(store, prefix, site.log_segment_bytes, secrets)
        if ending:
            log.say(ending)
        faults = [
            upload_logs(launch, archive, folder, log.say),
            upload_metrics(launch, store, folder),
            export_logs(launch, store, archive, folder, log.say),
        ]
    except (OSError, TrainshedError) as fault:
        return f"logs: {fault}"
    words = [str(fault) for fault in faults if fault is not None]
    if not words:
        folder.secrets.unlink(missing_ok=True)
    return "; ".join(words)
