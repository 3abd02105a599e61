"""The tables that migrations make are the tables that the code uses."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text

import trainshed.db.migrations
from trainshed.db.engine import begin, open_engine
from trainshed.db.migrations import NEWEST, upgrade
from trainshed.db.tables import metadata
from trainshed.model.errors import HostUnfit


def test_the_newest_revision_is_the_last_file() -> None:
    scripts = ScriptDirectory(str(Path(trainshed.db.migrations.__file__).parent))
    assert scripts.get_heads() == [NEWEST]


def test_migrated_tables_are_those_of_the_code(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_a_second_upgrade_changes_nothing(engine: Engine) -> None:
    upgrade(engine)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all() == [NEWEST]


def test_many_processes_may_upgrade_at_once(database_url: str) -> None:
    engines = [open_engine(database_url) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(upgrade, engines))
    with engines[0].connect() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all() == [NEWEST]
    for engine in engines:
        engine.dispose()


def test_a_newer_database_is_refused_and_left_alone(database_url: str) -> None:
    engine = open_engine(database_url)
    upgrade(engine)
    with begin(engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(HostUnfit, match="newer version") as refusal:
        upgrade(engine)
    assert refusal.value.code == "database_too_new"
    assert refusal.value.hint
    with engine.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "9999"
    engine.dispose()
