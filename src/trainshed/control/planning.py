"""From a job that was placed to the launch plans of its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection
from sqlalchemy import Engine as Database

from trainshed.db.engine import read
from trainshed.db.jobs import JobRow
from trainshed.db.users import user_by_id
from trainshed.db.workspaces import workspace_by_id
from trainshed.dialects.plan import plan_launch
from trainshed.dialects.planned_job import PlannedJob
from trainshed.model.flavor import Flavor
from trainshed.model.launch_plan import Environment, NodeLaunch, from_json
from trainshed.model.queue import Placement

__all__ = ["JobNames", "names_of", "plan_attempt"]


@dataclass(frozen=True)
class JobNames:
    """How a job's owner and workspace are called."""

    owner: str = "trainshed"
    workspace: str = "default"


def names_of(connection: Connection, job: JobRow) -> JobNames:
    """The names that a job's plan tells its processes."""
    owner = user_by_id(connection, job.owner_id)
    workspace = workspace_by_id(connection, job.workspace_id)
    return JobNames(
        owner.name if owner else JobNames.owner, workspace.name if workspace else JobNames.workspace
    )


def plan_attempt(
    database: Database,
    job: JobRow,
    attempt: int,
    flavor: Flavor,
    placements: tuple[Placement, ...],
    *,
    platform_variables: Mapping[str, str],
    credential_names: tuple[str, ...],
    spec: dict[str, Any] | None = None,
    names: JobNames | None = None,
) -> tuple[NodeLaunch, ...]:
    """The launch plans of an attempt; with `spec` instead of the job's own where the place demands changes.

    `names` spares whoever has read them already another look into the database.
    """
    if names is None:
        with read(database) as connection:
            names = names_of(connection, job)
    return plan_launch(
        PlannedJob(
            id=job.id,
            name=job.name,
            workspace_id=job.workspace_id,
            spec=job.spec if spec is None else spec,
            flavor=flavor,
            attempt=attempt,
            code_bucket=job.code_bucket,
            code_prefix=job.code_prefix,
            environment=from_json(Environment, job.environment or {"engine": "python", "python": ""}),
            rehearsal=job.rehearsal,
            platform_variables=dict(platform_variables),
            credential_names=credential_names,
            owner=names.owner,
            workspace=names.workspace,
        ),
        placements,
    )
