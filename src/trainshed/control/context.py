"""What the control loop works with. Everything that other rooms own comes in as a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection
from sqlalchemy import Engine as Database

from trainshed.db.events import add_event
from trainshed.db.jobs import JobRow
from trainshed.engines.engine import Engine
from trainshed.model.home import Home
from trainshed.model.launch_plan import Environment
from trainshed.model.settings import Settings
from trainshed.store.object_store import ObjectStore

__all__ = ["Control"]


@dataclass(frozen=True)
class Control:
    """The control loop's surroundings."""

    home: Home
    settings: Settings
    database: Database
    store: ObjectStore
    engines: Mapping[str, Engine]
    clock: Callable[[], float]
    # Resolves an engine's packages and a requirements text into an exact environment.
    resolve: Callable[[str, str | None, JobRow], Environment]
    # The values of a job's secret variables, its temporary credentials included.
    open_secrets: Callable[[JobRow], dict[str, str]]
    # Within the transaction that begins an attempt, and within that of the job's end.
    grant_credentials: Callable[[Connection, JobRow], object]
    revoke_credentials: Callable[[Connection, str], None]
    # The keys by which a job's nodes reach each other, and its owner reaches them.
    open_ssh_keys: Callable[[JobRow], dict[str, str]] = lambda job: {}
    # Puts messages about a job on their way to whoever wants to be told, within the transaction of the event.
    notify: Callable[[Connection, JobRow, str], None] = lambda _connection, _job, _event: None
    # Removes what nobody can reach any more: deleted jobs' files, abandoned uploads, expired credentials.
    tidy_up: Callable[[], object] = lambda: None
    # Variables that tell every process of a job where the platform is.
    platform_variables: Mapping[str, str] = field(default_factory=dict)
    credential_names: tuple[str, ...] = ()

    def tell(
        self, connection: Connection, job: JobRow, message: str, level: str = "info", **more: Any
    ) -> None:
        """Add a line to the job's story."""
        source = more.get("source", "control")
        add_event(connection, job.id, more.get("time", self.clock()), level, source, message)
