"""Every database test runs on the embedded database and on a real PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Engine

from trainshed.db.engine import begin, open_engine
from trainshed.db.jobs import JobRow
from trainshed.db.migrations import upgrade
from trainshed.db.users import UserRow, insert_user
from trainshed.db.workspaces import MemberRow, WorkspaceRow, insert_workspace, set_member
from trainshed.model.phase import Phase


@pytest.fixture
def engine(migrated_database_url: str) -> Iterator[Engine]:
    """A database with all tables."""
    engine = open_engine(migrated_database_url)
    upgrade(engine)
    yield engine
    engine.dispose()


@dataclass(frozen=True)
class Tenant:
    """A user with a workspace, to hang jobs on."""

    user_id: str
    workspace_id: str


@pytest.fixture
def tenant(engine: Engine) -> Tenant:
    """A tenant that exists."""
    with begin(engine) as connection:
        insert_user(connection, UserRow("u" * 32, "ann", False, 1.0))
        insert_workspace(connection, WorkspaceRow("a" * 32, 1, "default", 1.0))
        set_member(connection, MemberRow("a" * 32, "u" * 32, "developer", 1.0))
    return Tenant("u" * 32, "a" * 32)


@pytest.fixture
def make_job(tenant: Tenant) -> Callable[..., JobRow]:
    """Makes rows of jobs, each with an id and a name of its own."""

    def make(**changes: Any) -> JobRow:
        job_id = changes.pop("id", None) or str(uuid.uuid4())
        values: dict[str, Any] = {
            "workspace_id": tenant.workspace_id,
            "name": f"job-{job_id[:8]}",
            "owner_id": tenant.user_id,
            "phase": Phase.CREATING,
            "spec": {"boot": "train.py", "parameters": {"z": 1, "a": 2}},
            "flavor": "cpu.1",
            "nodes": 1,
            "created_at": 100.0,
        }
        return JobRow(id=job_id, **(values | changes))

    return make
