"""Bringing a backup back: into a folder beside the home first, and only a whole one takes its place."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from trainshed.daemon.archive import unpack_archive
from trainshed.daemon.home_folder import HOME_FORMAT, find_holder
from trainshed.model.errors import Conflict, HostUnfit, InvalidInput
from trainshed.model.home import Home

__all__ = ["RestoreSummary", "restore_backup"]


@dataclass(frozen=True)
class RestoreSummary:
    """What was brought back, and where the former home went."""

    objects: int
    taken_at: str
    moved_to: Path | None


def restore_backup(file: Path, home: Home, *, force: bool = False) -> RestoreSummary:
    """Make the home from a backup. A home that is there is moved aside with `force`, and never removed."""
    occupied = _check_place(home, force=force)
    draft = home.path.with_name(f".{home.path.name}.restore-{secrets.token_hex(4)}")
    try:
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir(mode=0o700)
        manifest = unpack_archive(file, draft)
        _check_content(file, draft)
        if (draft / "database.sqlite").exists():
            (draft / "database.sqlite").rename(Home(draft).database_url.removeprefix("sqlite:///"))
        # One sync for all of it: hundreds of thousands of blobs each with their own would take hours.
        os.sync()
        moved_to = None
        _check_place(home, force=force)
        if occupied:
            moved_to = home.path.with_name(
                f"{home.path.name}.before-restore-{time.strftime('%Y%m%d-%H%M%S')}"
            )
            home.path.rename(moved_to)
        elif home.path.is_dir():
            home.path.rmdir()
        draft.rename(home.path)
    except OSError as fault:
        raise HostUnfit(
            f"The backup could not be unpacked: {fault.strerror}.",
            hint=f"Check the space and the permissions of {home.path.parent}.",
            where=str(fault.filename or home.path),
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    objects = sum(1 for name in manifest["files"] if name.startswith("store/blobs/"))
    return RestoreSummary(objects, str(manifest.get("taken_at", "")), moved_to)


def _check_place(home: Home, *, force: bool) -> bool:
    """Whether something is at the home's place that has to be moved aside; refuse if it may not be."""
    if not home.path.exists() or (home.path.is_dir() and not any(home.path.iterdir())):
        return False
    if not home.path.is_dir():
        raise InvalidInput(f"{home.path} is not a folder.", hint="Name a folder with --home.", where="--home")
    if find_holder(home) is not None:
        raise Conflict(
            f"The platform of {home.path} is running.",
            hint="Stop it first: trainshed down.",
            code="already_running",
        )
    if not force:
        raise Conflict(
            f"{home.path} is not empty.",
            hint="Name another folder with --home, or give --force to move this one aside.",
            code="home_not_empty",
        )
    running = sum(1 for lock in home.jobs.glob("*/attempt-*/node-*/runner.lock") if _is_held(lock))
    if running:
        raise Conflict(
            f"{running} runner(s) of jobs still work in {home.path}.",
            hint="Wait for them, or start the platform and stop the jobs.",
            code="jobs_running",
        )
    return True


def _is_held(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _check_content(file: Path, draft: Path) -> None:
    """What the checksums cannot tell: whether this version can read it."""
    try:
        marker = json.loads((draft / "home.json").read_bytes())
        form, version = int(marker["format"]), str(marker.get("version", "?"))
    except (OSError, ValueError, KeyError, TypeError):
        raise InvalidInput(
            f"{file} holds no home.", hint="Use another backup.", code="damaged_backup"
        ) from None
    if form > HOME_FORMAT:
        raise HostUnfit(
            f"{file} was written by Trainshed {version}, which is newer than this one.",
            hint="Install that version or a later one.",
            code="newer_home",
        )
    for name in ("database.sqlite", "store/index.sqlite"):
        if (draft / name).exists():
            connection = sqlite3.connect(draft / name)
            try:
                answer = connection.execute("PRAGMA quick_check").fetchone()[0]
            except sqlite3.Error as fault:
                answer = str(fault)
            finally:
                connection.close()
            if answer != "ok":
                raise InvalidInput(
                    f"{name} in {file} is damaged: {answer}.",
                    hint="Use another backup.",
                    code="damaged_backup",
                )
