"""Transactions behave the same on both databases."""

from __future__ import annotations

import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from trainshed.db.engine import begin, clean_text, is_text, open_engine, read
from trainshed.model.errors import HostUnfit, InvalidInput, Unavailable


def test_a_failing_block_leaves_nothing(engine: Engine) -> None:
    with pytest.raises(RuntimeError), begin(engine) as connection:
        connection.execute(text("INSERT INTO leases VALUES ('x', 'h', 1, 0)"))
        raise RuntimeError
    with read(engine) as connection:
        assert connection.execute(text("SELECT count(*) FROM leases")).scalar() == 0


def test_many_writers_at_once_all_succeed(engine: Engine) -> None:
    with begin(engine) as connection:
        connection.execute(text("INSERT INTO leases VALUES ('x', 'h', 0, 0)"))

    def add_one(_: int) -> None:
        with begin(engine) as connection:
            fence = connection.execute(text("SELECT fence FROM leases WHERE name = 'x'")).scalar_one()
            connection.execute(text("UPDATE leases SET fence = fence + 1"))
            assert fence >= 0

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add_one, range(80)))
    with read(engine) as connection:
        assert connection.execute(text("SELECT fence FROM leases")).scalar() == 80


def test_a_reader_does_not_wait_for_a_writer(engine: Engine) -> None:
    written, seen = threading.Event(), threading.Event()

    def write() -> None:
        with begin(engine) as connection:
            connection.execute(text("INSERT INTO leases VALUES ('x', 'h', 0, 0)"))
            written.set()
            assert seen.wait(90)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(write)
        assert written.wait(90)
        with read(engine) as connection:
            assert connection.execute(text("SELECT count(*) FROM leases")).scalar() == 0
        seen.set()
        done.result(20)


def test_foreign_keys_hold(engine: Engine) -> None:
    from sqlalchemy.exc import IntegrityError

    with pytest.raises(IntegrityError), begin(engine) as connection:
        connection.execute(text("INSERT INTO job_secrets VALUES ('no such job', 'x')"))


def test_the_embedded_database_is_durable_and_private(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    engine = open_engine(f"sqlite:///{path}")
    with read(engine) as connection:
        pragmas = {
            name: connection.execute(text(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    engine.dispose()
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30000}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_unusable_urls_are_refused_with_a_hint(tmp_path: Path) -> None:
    for url in ("mysql://x/y", "nonsense", "sqlite://"):
        with pytest.raises(InvalidInput):
            open_engine(url)
    with pytest.raises(HostUnfit, match="cannot be opened"):
        open_engine(f"sqlite:///{tmp_path / 'missing' / 'db.sqlite'}")


def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    engine = open_engine(f"postgresql://nobody@/x?host={tmp_path}")
    with pytest.raises(Unavailable) as refusal, read(engine) as connection:
        connection.execute(text("SELECT 1"))
    assert refusal.value.code == "database_unavailable"
    engine.dispose()


def test_text_that_no_database_holds_is_known() -> None:
    assert is_text("größe 日本 😀")
    assert not is_text("a\0b")
    assert not is_text("\ud800")
    assert clean_text("a\0b\ud800ü") == "a\ufffdb\ufffdü"


def test_a_home_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "a home?x=1%20#ü"
    folder.mkdir()
    engine = open_engine(f"sqlite:///{folder / 'db.sqlite'}")
    with read(engine) as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
    engine.dispose()
    assert (folder / "db.sqlite").stat().st_size > 0
