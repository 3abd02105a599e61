"""The tables of the platform's database. Times are seconds since the epoch, ids are text."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

__all__ = [
    "ENDED_PHASES_SQL",
    "access_keys",
    "attempts",
    "events",
    "job_secrets",
    "jobs",
    "leases",
    "login_links",
    "members",
    "metadata",
    "nodes",
    "notification_targets",
    "notifications",
    "sessions",
    "ssh_keys",
    "tokens",
    "users",
    "workspaces",
]

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# Plain JSON, not JSONB: the order of a job's parameters is the order of its arguments.
_Json = JSON(none_as_null=True)
# SQLite numbers its rows by itself only in a column of type INTEGER.
_Number = BigInteger().with_variant(Integer, "sqlite")

# Written as text in the index and in the query alike: SQLite uses a partial index only for the same words.
ENDED_PHASES_SQL = "phase IN ('Completed', 'Failed', 'Terminated')"
_ACTIVE = text(f"NOT ({ENDED_PHASES_SQL})")
_NOT_DELETED = text("deleted_at IS NULL")

users = Table(
    "users",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("is_admin", Boolean, nullable=False),
    Column("password_hash", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("disabled_at", Double),
)

workspaces = Table(
    "workspaces",
    metadata,
    Column("id", String(32), primary_key=True),
    # The jobs of workspace n run as the user id `job_uid_base` + n; a number is never given twice.
    Column("number", Integer, nullable=False, unique=True),
    Column("name", String(64), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("deleted_at", Double),
    Index(
        "uq_workspaces_name",
        "name",
        unique=True,
        sqlite_where=_NOT_DELETED,
        postgresql_where=_NOT_DELETED,
    ),
)

members = Table(
    "members",
    metadata,
    Column("workspace_id", ForeignKey("workspaces.id", ondelete="CASCADE"), primary_key=True),
    Column("user_id", ForeignKey("users.id", ondelete="CASCADE"), primary_key=True, index=True),
    Column("role", String(16), nullable=False),
    Column("created_at", Double, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("workspace_id", ForeignKey("workspaces.id"), nullable=False),
    Column("name", String(64), nullable=False),
    Column("owner_id", ForeignKey("users.id"), nullable=False),
    Column("phase", String(16), nullable=False),
    Column("detail", String(32), nullable=False),
    Column("spec", _Json, nullable=False),
    Column("flavor", String(64), nullable=False),
    Column("nodes", Integer, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("preemptible", Boolean, nullable=False),
    Column("restarts", Integer, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("queued_at", Double),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("attempt", Integer, nullable=False),
    Column("starts_without_launch", Integer, nullable=False),
    Column("version", Integer, nullable=False),
    Column("environment", _Json),
    Column("code_bucket", String(64), nullable=False),
    Column("code_prefix", String(1024), nullable=False),
    Column("stop_requested", Boolean, nullable=False),
    Column("stop_reason", Text, nullable=False),
    Column("ending", _Json),
    Column("wait", _Json),
    Column("rehearsal", Boolean, nullable=False),
    Column("deleted_at", Double),
    Index(
        "uq_jobs_workspace_id_name",
        "workspace_id",
        "name",
        unique=True,
        sqlite_where=_NOT_DELETED,
        postgresql_where=_NOT_DELETED,
    ),
    Index("ix_jobs_workspace_id_created_at", "workspace_id", "created_at", "id"),
    Index(
        "ix_jobs_active",
        "priority",
        "created_at",
        sqlite_where=_ACTIVE,
        postgresql_where=_ACTIVE,
    ),
    Index("ix_jobs_ended_at", "ended_at"),
    Index("ix_jobs_code_prefix", "code_prefix"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("job_id", ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("engine", String(64), nullable=False),
    Column("placements", _Json, nullable=False),
    Column("state", String(16), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("ending", _Json),
    Column("reports", _Json, nullable=False),
    Column("discarded", Boolean, nullable=False),
    Index("ix_attempts_discarded_ended_at", "discarded", "ended_at"),
)

events = Table(
    "events",
    metadata,
    Column("id", _Number, primary_key=True),
    Column("job_id", ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("time", Double, nullable=False),
    Column("level", String(16), nullable=False),
    Column("source", String(64), nullable=False),
    Column("message", Text, nullable=False),
    Index("ix_events_job_id_id", "job_id", "id"),
)

job_secrets = Table(
    "job_secrets",
    metadata,
    Column("job_id", ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
)

nodes = Table(
    "nodes",
    metadata,
    Column("engine", String(64), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("position", Integer, nullable=False),
    Column("node", _Json, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("hash", String(64), nullable=False, unique=True),
    Column("user_id", ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("workspace_id", ForeignKey("workspaces.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("name", String(64), nullable=False),
    Column("scopes", _Json, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    # Of a job: valid only while the job has not ended.
    Column("job_id", ForeignKey("jobs.id", ondelete="CASCADE"), index=True),
)

access_keys = Table(
    "access_keys",
    metadata,
    Column("access_key", String(32), primary_key=True),
    Column("sealed_secret", LargeBinary, nullable=False),
    Column("user_id", ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("workspace_id", ForeignKey("workspaces.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("name", String(64), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("job_id", ForeignKey("jobs.id", ondelete="CASCADE"), index=True),
)

ssh_keys = Table(
    "ssh_keys",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("user_id", ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("fingerprint", String(64), nullable=False, unique=True),
    Column("name", String(64), nullable=False),
    Column("key", Text, nullable=False),
    Column("created_at", Double, nullable=False),
)

notification_targets = Table(
    "notification_targets",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("workspace_id", ForeignKey("workspaces.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("user_id", ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    Column("covers", String(16), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("address", Text, nullable=False),
    Column("events", _Json, nullable=False),
    Column("secret", LargeBinary, nullable=False),
    Column("created_at", Double, nullable=False),
)

notifications = Table(
    "notifications",
    metadata,
    Column("id", String(32), primary_key=True),
    Column(
        "target_id", ForeignKey("notification_targets.id", ondelete="CASCADE"), nullable=False, index=True
    ),
    Column("job_id", String(36), nullable=False),
    Column("event", String(32), nullable=False),
    Column("body", _Json, nullable=False),
    Column("state", String(16), nullable=False),
    Column("tries", Integer, nullable=False),
    Column("error", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("next_at", Double, nullable=False),
    Index("ix_notifications_due", "state", "next_at"),
)

sessions = Table(
    "sessions",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("user_id", ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("workspace_id", ForeignKey("workspaces.id", ondelete="CASCADE"), nullable=False),
    Column("csrf", String(64), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False, index=True),
)

login_links = Table(
    "login_links",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("user_id", ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("used_at", Double),
)

leases = Table(
    "leases",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("holder", String(255), nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("expires_at", Double, nullable=False),
)
