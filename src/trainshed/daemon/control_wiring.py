"""Puts the control loop's surroundings together from the services that own them."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

from trainshed.control.context import Control
from trainshed.db.engine import read
from trainshed.db.jobs import JobRow
from trainshed.db.workspaces import workspace_by_id
from trainshed.engines.local.engine import LocalEngine
from trainshed.model.engines import find_engine
from trainshed.model.flavor import Node
from trainshed.model.launch_plan import Environment
from trainshed.runner.environment.resolution import resolve
from trainshed.runner.inventory import describe_node
from trainshed.runner.site import PlatformPort, Site
from trainshed.services.certificates import job_host
from trainshed.services.job_credentials import (
    create_job_credentials,
    grant_job_credentials,
    load_job_secrets,
    revoke_job_credentials,
)
from trainshed.services.job_variables import CREDENTIAL_NAMES, credential_variables, platform_variables
from trainshed.services.notifications import tell_about_job
from trainshed.services.platform import Platform
from trainshed.services.slurm import slurm_engine
from trainshed.services.ssh_keys import job_ssh_keys
from trainshed.services.store_place import find_store
from trainshed.services.upkeep import tidy_up

__all__ = ["build_control"]


def build_control(platform: Platform) -> Control:
    """The control loop's surroundings on this machine."""

    pools = platform.settings.all_pools

    def inventory() -> list[Node]:
        mine = [pool.name for pool in pools if pool.engine == "local"]
        return [describe_node(pool=name, rehearse=platform.settings.rehearse) for name in mine]

    def open_secrets(job: JobRow) -> dict[str, str]:
        credentials = create_job_credentials(platform, job.id)
        secrets = load_job_secrets(platform, job.id)
        own = (*job.spec.get("environment", {}), *secrets)
        return {**secrets, **credential_variables(credentials, own)}

    def resolve_environment(engine: str, requirements: str | None, job: JobRow) -> Environment:
        return resolve(
            find_engine(engine, platform.settings.engines),
            requirements,
            folder=platform.home.environments,
            uid=_uid_of(platform, job.workspace_id),
            install_uid=platform.settings.install_uid,
            allow_index=platform.settings.requirements_may_name_index,
            sandboxed=not platform.settings.allow_unsandboxed,
        )

    return Control(
        home=platform.home,
        settings=platform.settings,
        database=platform.engine,
        store=platform.store,
        engines={
            "local": LocalEngine(platform.home, inventory, lambda workspace: _site(platform, workspace)),
            **({"slurm": slurm_engine(platform)} if any(pool.engine == "slurm" for pool in pools) else {}),
        },
        clock=platform.clock,
        resolve=resolve_environment,
        open_secrets=open_secrets,
        open_ssh_keys=lambda job: job_ssh_keys(platform, job),
        grant_credentials=lambda connection, job: grant_job_credentials(platform, connection, job),
        revoke_credentials=revoke_job_credentials,
        tidy_up=lambda: tidy_up(platform),
        notify=lambda connection, job, event: tell_about_job(platform, connection, job, event),
        platform_variables=platform_variables(platform),
        credential_names=CREDENTIAL_NAMES,
    )


def _site(platform: Platform, workspace_id: str) -> dict[str, Any]:
    settings = platform.settings
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(settings.host, settings.host)
    site = Site(
        store_url=find_store(platform.home, settings),
        environments=str(platform.home.environments),
        ports=(PlatformPort(settings.port, host), PlatformPort(settings.obs_port, host)),
        doorbell=str(platform.home.doorbell),
        uid=_uid_of(platform, workspace_id),
        install_uid=settings.install_uid,
        allow_unsandboxed=settings.allow_unsandboxed,
        log_segment_bytes=settings.log_segment_mb << 20,
        disk_reserve_bytes=settings.disk_reserve_mb << 20,
        checkpoint_bytes=settings.checkpoints_gb << 30,
        leftovers_bytes=settings.leftovers_mb << 20,
        input_cache=str(platform.home.input_cache.absolute()),
        host_folders=settings.host_folders,
        kept_folders=str(platform.home.kept_folders(workspace_id).absolute()),
        kept_quota_bytes=settings.kept_quota_gb << 30,
        ca_bundle=str(platform.home.tls_bundle.absolute()) if settings.serves_tls else "",
        host_name=job_host(settings) if settings.serves_tls else "",
    )
    return asdict(site)


def _uid_of(platform: Platform, workspace_id: str) -> int | None:
    """The user id of a workspace's jobs, where the platform runs as root."""
    if os.geteuid() != 0:
        return None
    with read(platform.engine) as connection:
        workspace = workspace_by_id(connection, workspace_id)
    return platform.settings.job_uid_base + (workspace.number if workspace else 0)
