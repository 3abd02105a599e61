"""Bringing a database to the form that this version of the platform needs."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from trainshed.db.engine import begin, read
from trainshed.model.errors import HostUnfit

__all__ = ["NEWEST", "upgrade"]

# The revision of the last file in `versions/`; a test compares the two.
NEWEST = "0003"

# Any number that no other program is likely to lock.
_ADVISORY_LOCK = 7480_2023_0001


def upgrade(engine: Engine) -> None:
    """Create or update all tables. Safe when several processes call it at once.

    A database that a newer version of the platform wrote is refused.
    """
    with read(engine) as connection:
        if _revision(connection) == NEWEST:
            return
    with begin(engine) as connection:
        # SQLite: `begin` has taken the write lock. PostgreSQL: this lock lasts until the commit.
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        found = _revision(connection)
        if found != NEWEST:
            _run(connection, found)


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision


def _run(connection: Connection, found: str | None) -> None:
    # Alembic is needed at the first start and after an upgrade only; it would cost every process memory.
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.runtime.migration import RevisionStep
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    scripts = ScriptDirectory.from_config(config)
    if found is not None and found not in {script.revision for script in scripts.walk_revisions()}:
        raise HostUnfit(
            f"The database was written by a newer version of the platform (schema {found}, "
            f"this version knows up to {NEWEST}).",
            hint="Install that version again, or restore a backup made with this one.",
            code="database_too_new",
        )

    def steps(revision: object, _context: object) -> list[RevisionStep]:
        return scripts._upgrade_revs(NEWEST, revision)  # type: ignore[arg-type]

    with EnvironmentContext(config, scripts, fn=steps, destination_rev=NEWEST) as environment:
        environment.configure(connection=connection)
        environment.run_migrations()
