"""Writing a consistent backup of a platform, running or not.

The database is copied first and the store's index second, both with SQLite's own online backup: what the
database names is in the index by then. Blobs never change but may be deleted while we copy, so each one that the
index names is pinned with a hard link at once; when one is gone already, the index is copied again.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from trainshed import __version__
from trainshed.daemon.archive import SMALL_FILES, ArchiveWriter
from trainshed.daemon.home_folder import load_settings, read_marker
from trainshed.durable import sync_folder
from trainshed.model.errors import Conflict, HostUnfit, NotFound
from trainshed.model.home import Home

__all__ = ["BackupSummary", "write_backup"]

_FREE_ROUNDS = 3


@dataclass(frozen=True)
class BackupSummary:
    """What a backup holds."""

    objects: int
    size: int
    has_database: bool


def write_backup(home: Home, target: Path, *, replace: bool = False) -> BackupSummary:
    """Write the state of a home to one file. The file appears only when it is complete."""
    if not read_marker(home):
        raise NotFound(f"{home.path} is no home of a platform.", hint="Name it with --home.", where="--home")
    target = target.absolute()
    if target.exists() and not replace:
        raise Conflict(
            f"{target} exists already.", hint="Name another file, or give --force.", where=str(target)
        )
    if not target.parent.is_dir():
        raise NotFound(f"There is no folder {target.parent}.", hint="Make it first.", where=str(target))
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with _pins(home) as pins, draft.open("xb") as file:
            draft.chmod(0o600)
            summary = _write(home, pins, file, compressed=target.name.endswith((".gz", ".tgz")))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
        sync_folder(target.parent)
    except OSError as fault:
        raise HostUnfit(
            f"The backup could not be written: {fault.strerror}.",
            hint=f"Check the space and the permissions of {target.parent}.",
            where=str(fault.filename or target),
        ) from None
    except sqlite3.Error as fault:
        raise HostUnfit(
            f"The platform's database could not be copied: {fault}.",
            hint="`trainshed doctor` checks the disk.",
        ) from None
    finally:
        draft.unlink(missing_ok=True)
    return summary


def _write(home: Home, pins: Path, file: IO[bytes], *, compressed: bool) -> BackupSummary:
    taken_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    external = bool(load_settings(home, os.environ, {}).database_url)
    if not external:
        _copy_database(Path(home.database_url.removeprefix("sqlite:///")), pins / "database.sqlite")
    blobs = _pin_store(home, pins)
    archive = ArchiveWriter(file, compressed=compressed)
    size = 0
    for name in SMALL_FILES:
        if (home.path / name).is_file():
            size += archive.add(name, home.path / name)
    if not external:
        size += archive.add("database.sqlite", pins / "database.sqlite")
    if (pins / "index.sqlite").exists():
        size += archive.add("store/index.sqlite", pins / "index.sqlite")
    for blob in blobs:
        size += archive.add(f"store/blobs/{blob[:2]}/{blob}", pins / "blobs" / blob)
    archive.finish({"version": __version__, "taken_at": taken_at, "external_database": external})
    return BackupSummary(len(blobs), size, not external)


@contextmanager
def _pins(home: Home) -> Iterator[Path]:
    """A folder beside the blobs for hard links and copies; one backup at a time may have it."""
    home.run.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(home.run / "backup.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict("Another backup is being written.", hint="Wait until it is done.") from None
        # What a backup that was killed left.
        folder = home.path / "backup-in-progress"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "blobs").mkdir(mode=0o700, parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _pin_store(home: Home, pins: Path) -> list[str]:
    """Copy the index and link every blob it names; returns the blobs' names."""
    index = home.store / "index.sqlite"
    if not index.exists():
        return []
    for _ in range(_FREE_ROUNDS):
        if not _pin_round(home, pins):
            return _list_blobs(pins / "index.sqlite")
    # The store changes all the time. Most blobs are pinned by now: a last short round with writers held back.
    holder = sqlite3.connect(index, timeout=60, isolation_level=None)
    try:
        holder.execute("BEGIN IMMEDIATE")
        missing = _pin_round(home, pins)
    finally:
        holder.close()
    if missing:
        raise HostUnfit(
            f"The store has lost {len(missing)} blob(s), such as {missing[0]}.",
            hint="Check the disk, and restore the latest backup beside this home to compare.",
            code="store_damaged",
        )
    return _list_blobs(pins / "index.sqlite")


def _pin_round(home: Home, pins: Path) -> list[str]:
    """Copy the index and link what it names; returns the blobs that were gone already."""
    (pins / "index.sqlite").unlink(missing_ok=True)
    _copy_database(home.store / "index.sqlite", pins / "index.sqlite")
    return [
        blob
        for blob in _list_blobs(pins / "index.sqlite")
        if not _pin(home.store / "blobs" / blob[:2] / blob, pins / "blobs" / blob)
    ]


def _list_blobs(index: Path) -> list[str]:
    connection = sqlite3.connect(index)
    try:
        present = {
            row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        # Uploads that are not finished have no place in a backup.
        for table in ("parts", "slots", "uploads"):
            if table in present:
                connection.execute(f"DELETE FROM {table}")
        connection.commit()
        named = " UNION ".join(
            f"SELECT blob FROM {table} WHERE blob != ''"
            for table in ("objects", "versions")
            if table in present
        )
        return [row[0] for row in connection.execute(f"{named} ORDER BY 1")]
    finally:
        connection.close()


def _pin(blob: Path, link: Path) -> bool:
    try:
        os.link(blob, link)
    except FileExistsError:
        return True
    except FileNotFoundError:
        return False
    except OSError:
        # A disk without hard links, or too many of them.
        shutil.copyfile(blob, link)
    return True


def _copy_database(source: Path, target: Path) -> None:
    reader = sqlite3.connect(source.as_uri() + "?mode=ro", uri=True, timeout=60)
    try:
        writer = sqlite3.connect(target)
        try:
            reader.backup(writer)
            # One file, without a log beside it: the form in which it travels.
            writer.execute("PRAGMA journal_mode = DELETE")
        finally:
            writer.close()
    finally:
        reader.close()
