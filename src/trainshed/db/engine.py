"""Opening the database: embedded SQLite or PostgreSQL, with transactions that behave the same on both."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from trainshed.model.errors import HostUnfit, InvalidInput, Unavailable

__all__ = ["begin", "clean_text", "is_duplicate", "is_text", "open_engine", "read"]

_READ_ONLY = "trainshed_read_only"
_BUSY_SECONDS = 30


def open_engine(url: str) -> Engine:
    """The database behind a URL: `sqlite:////abs/file` or `postgresql://user@host/name`."""
    if url.startswith("sqlite:///"):
        # Not parsed: the path of a home may hold any character, `?` and `%` too.
        return _open_sqlite(URL.create("sqlite", database=url.removeprefix("sqlite:///")))
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise InvalidInput(
            "The database URL cannot be read.",
            hint="Write postgresql://user@host/name, or leave the setting empty for the embedded database.",
            where="database_url",
        ) from None
    kind = parsed.get_backend_name()
    if kind == "postgresql":
        # Server-side prepared statements would break behind a pooler such as pgbouncer.
        return sqlalchemy.create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            pool_size=8,
            max_overflow=40,
            pool_pre_ping=True,
            connect_args={"prepare_threshold": None, "connect_timeout": 10},
        )
    raise InvalidInput(
        f"The platform cannot use a database of the kind '{kind}'.",
        hint="Use PostgreSQL, or leave the setting empty for the embedded database.",
        where="database_url",
    )


def _open_sqlite(url: URL) -> Engine:
    if not url.database or url.database == ":memory:":
        raise InvalidInput("The embedded database needs a file.", where="database_url")
    try:
        # Only its owner may read it, from the first moment.
        os.close(os.open(url.database, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError as fault:
        raise HostUnfit(
            f"The database file cannot be opened: {fault.strerror} ({url.database}).",
            hint="Check that the folder exists and is writable.",
        ) from None
    engine = sqlalchemy.create_engine(
        url,
        pool_size=8,
        max_overflow=40,
        # isolation_level None: the driver starts no transaction by itself, `_start_transaction` does.
        connect_args={"timeout": _BUSY_SECONDS, "isolation_level": None, "check_same_thread": False},
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _start_transaction)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")
    _switch_to_wal(cursor)
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _switch_to_wal(cursor: sqlite3.Cursor) -> None:
    """Needed once in a database's life. SQLite does not wait for others here, so we do."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                cursor.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _start_transaction(connection: Connection) -> None:
    # A transaction that reads first and writes later would fail at once when another wrote in between:
    # writers queue up at their beginning instead.
    read_only = connection.get_execution_options().get(_READ_ONLY, False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


@contextmanager
def begin(engine: Engine) -> Iterator[Connection]:
    """A transaction that may write: committed at the end of the block, rolled back by an exception."""
    with _explained(), engine.begin() as connection:
        yield connection


@contextmanager
def read(engine: Engine) -> Iterator[Connection]:
    """A transaction that only reads; it never waits for writers."""
    with _explained(), engine.connect() as connection:
        yield connection.execution_options(**{_READ_ONLY: True})


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except OperationalError as fault:
        reason = str(fault.orig).strip().splitlines()[0] if fault.orig else "no answer"
        raise Unavailable(
            f"The database cannot be used at this moment: {reason}.",
            hint="Check the disk's free space and the database server, then try again.",
            code="database_unavailable",
        ) from fault
    except PoolTimeout as fault:
        raise Unavailable(
            "Too many requests use the database at this moment.",
            hint="Try again in a moment.",
            code="database_busy",
        ) from fault


def is_duplicate(fault: IntegrityError) -> bool:
    """Whether a write was refused because such a row exists already."""
    if getattr(fault.orig, "sqlstate", "") == "23505":
        return True
    return "UNIQUE constraint failed" in str(fault.orig)


def is_text(value: str) -> bool:
    """Whether a database can hold the text at all: no NUL, no half of a surrogate pair."""
    return "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)


def clean_text(value: str) -> str:
    """The text with a replacement character for whatever a database cannot hold."""
    if is_text(value):
        return value
    return "".join("\ufffd" if char == "\0" or "\ud800" <= char <= "\udfff" else char for char in value)
