"""The home folder of a platform on this host: made, checked, read and locked. Standard library only."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from trainshed import __version__
from trainshed.durable import replace_file
from trainshed.model.errors import Conflict, HostUnfit, InvalidInput
from trainshed.model.home import Home
from trainshed.model.settings import ENVIRONMENT_PREFIX, Settings, read_settings

__all__ = [
    "HOME_FORMAT",
    "HomeLock",
    "explain_home_fault",
    "find_holder",
    "load_settings",
    "make_home",
    "platform_environment",
    "read_marker",
    "settings_environment",
    "write_marker",
]

# Raised when an older platform could no longer read a home of this one (the database has its own migrations).
HOME_FORMAT = 1
# Keys of the external store: never in the variables of the platform's processes.
_KEPT_IN_A_FILE = ("store_access_key", "store_secret_key")
# What may lie in a home before its first start: written by people, by `trainshed login`, by a first try.
_BEFORE_FIRST_START = {"settings.toml", "client.json", "ca.pem", "run", "logs"}


def make_home(path: Path) -> Home:
    """The home at that path, made if it is not there. What cannot be a home is refused and left as it is."""
    home = Home(path.expanduser().absolute())
    if home.path.exists() and not home.path.is_dir():
        raise InvalidInput(
            f"{home.path} is not a folder.",
            hint="Name a folder with --home.",
            where="--home",
            code="bad_home",
        )
    if home.path.is_dir() and not home.marker.exists():
        try:
            strangers = sorted(
                entry.name for entry in home.path.iterdir() if entry.name not in _BEFORE_FIRST_START
            )
        except OSError as fault:
            raise explain_home_fault(home, fault) from None
        if strangers:
            raise InvalidInput(
                f"{home.path} holds other files ({', '.join(strangers[:3])}) and is no home of a platform.",
                hint="Name an empty or new folder with --home.",
                where="--home",
                code="bad_home",
            )
    read_marker(home)
    try:
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if home.path.stat().st_mode & 0o077:
            # Databases and logs lie in it that are nobody else's business.
            home.path.chmod(0o700)
        home.run.mkdir(mode=0o700, exist_ok=True)
        home.logs.mkdir(mode=0o700, exist_ok=True)
        # A full disk still makes empty files: write a little.
        replace_file(home.run / "write.check", b"x" * 8192)
        (home.run / "write.check").unlink()
    except OSError as fault:
        raise explain_home_fault(home, fault) from None
    return home


def read_marker(home: Home) -> dict[str, Any]:
    """What the home says about itself; a home that this version cannot read is refused."""
    try:
        marker = json.loads(home.marker.read_bytes())
        form = int(marker["format"])
    except FileNotFoundError:
        return {}
    except PermissionError as fault:
        raise explain_home_fault(home, fault) from None
    except (OSError, ValueError, TypeError, KeyError):
        raise HostUnfit(
            f"{home.marker} cannot be read.",
            hint="Restore the home from a backup, or name another one with --home.",
            code="bad_home",
        ) from None
    if form > HOME_FORMAT:
        raise HostUnfit(
            f"{home.path} was made by Trainshed {marker.get('version', '?')}, which is newer than this one ({__version__}).",
            hint="Install that version or a later one: pip install '.[server]' in a checkout of it.",
            code="newer_home",
        )
    return dict(marker)


def write_marker(home: Home) -> None:
    """Record which version uses this home from now on."""
    wanted = {"format": HOME_FORMAT, "version": __version__}
    try:
        if read_marker(home) != wanted:
            replace_file(home.marker, json.dumps(wanted).encode() + b"\n", 0o644)
    except OSError as fault:
        raise explain_home_fault(home, fault) from None


def load_settings(home: Home, environment: Mapping[str, str], given: Mapping[str, Any]) -> Settings:
    """The platform's settings: settings.toml, overridden by the environment, overridden by the command line."""
    try:
        table = tomllib.loads(home.settings.read_text("utf-8"))
    except FileNotFoundError:
        table = {}
    except OSError as fault:
        raise explain_home_fault(home, fault) from None
    except ValueError as fault:
        raise InvalidInput(
            f"settings.toml cannot be read: {fault}.", hint=f"Correct {home.settings}.", where="settings.toml"
        ) from None
    settings = read_settings(table, environment, given)
    for name in ("port", "obs_port", "ssh_port"):
        if not 0 <= getattr(settings, name) <= 65535:
            raise InvalidInput(
                f"{getattr(settings, name)} is not a port.",
                hint="Use 1 to 65535, or 0 for any free one.",
                where=name,
            )
    return settings


def settings_environment(settings: Settings) -> dict[str, str]:
    """The settings as variables, so that every process of the platform sees the same ones.

    Tables have no form there; they come from settings.toml in every process. Keys of the external store come
    from a file of the home.
    """
    return {
        ENVIRONMENT_PREFIX + field.name.upper(): str(value)
        for field in fields(settings)
        if field.name not in _KEPT_IN_A_FILE
        and isinstance(value := getattr(settings, field.name), str | int | float)
    }


def platform_environment(environment: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """The variables of the platform's processes: those given, with the settings, without the store's keys."""
    hidden = {ENVIRONMENT_PREFIX + name.upper() for name in _KEPT_IN_A_FILE}
    kept = {name: value for name, value in environment.items() if name not in hidden}
    return kept | settings_environment(settings)


@dataclass
class HomeLock:
    """The right to run the platform of a home: one process at a time has it, until it ends."""

    descriptor: int

    @classmethod
    def take(cls, home: Home) -> HomeLock:
        """Take the lock, or say who has it."""
        try:
            descriptor = os.open(home.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as fault:
            raise explain_home_fault(home, fault) from None
        # `find_holder` holds the lock for an instant when it asks: one refusal alone proves nothing.
        for trial in range(5):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if trial < 4:
                    time.sleep(0.05)
                    continue
                holder = _read_pid(descriptor)
                os.close(descriptor)
            raise Conflict(
                f"The platform of {home.path} is already running, pid {holder or 'unknown'}.",
                hint="`trainshed status` shows it, `trainshed down` stops it.",
                code="already_running",
            )
        lock = cls(descriptor)
        lock.sign()
        return lock

    def sign(self) -> None:
        """Write this process's id into the lock file."""
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Give the lock back."""
        os.close(self.descriptor)


def find_holder(home: Home) -> int | None:
    """The process that runs the platform of this home; None when none does (0: its id is not known yet)."""
    try:
        descriptor = os.open(home.lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise explain_home_fault(home, fault) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_pid(descriptor)
    finally:
        os.close(descriptor)
    return None


def _read_pid(descriptor: int) -> int:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else 0


def explain_home_fault(home: Home, fault: OSError) -> HostUnfit:
    """The error of the operating system in words, with what to do about it."""
    reasons = {
        errno.EROFS: ("is on a read-only disk", "Name a folder on a writable disk with --home."),
        errno.ENOSPC: ("is on a full disk", "Free some space, or name another folder with --home."),
        errno.EDQUOT: ("is on a disk whose quota is used up", "Free some space, or use another --home."),
        errno.EACCES: (
            "may not be written by this user",
            "Run as its owner, or name another folder with --home.",
        ),
        errno.EPERM: (
            "may not be written by this user",
            "Run as its owner, or name another folder with --home.",
        ),
        errno.ENOTDIR: ("lies below something that is not a folder", "Name another folder with --home."),
    }
    what, hint = reasons.get(
        fault.errno or 0, (f"cannot be used: {fault.strerror}", "Name another folder with --home.")
    )
    return HostUnfit(f"The home {home.path} {what}.", hint=hint, code="home_unusable", where="--home")
