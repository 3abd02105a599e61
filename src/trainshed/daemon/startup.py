"""Bringing a platform up: check, make the home, prepare the database, hand over to the supervisor."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainshed import __version__
from trainshed.daemon.home_folder import (
    HomeLock,
    explain_home_fault,
    find_holder,
    load_settings,
    make_home,
    platform_environment,
    read_marker,
    write_marker,
)
from trainshed.daemon.preflight import check_host, check_sandbox, check_settings, choose_ports
from trainshed.daemon.supervisor import read_tail
from trainshed.daemon.tls import check_tls, find_authority, prepare_tls
from trainshed.durable import replace_file
from trainshed.model.errors import Conflict, HostUnfit, NotAuthenticated, Unavailable
from trainshed.model.home import Home
from trainshed.model.settings import Settings
from trainshed.services.public_urls import api_url, obs_url

if TYPE_CHECKING:
    from trainshed.services.platform import Platform

__all__ = [
    "Prepared",
    "api_url",
    "obs_url",
    "prepare",
    "read_state",
    "render_banner",
    "replace_with_supervisor",
    "start_detached",
]

# A busy machine takes its time; a part that fails is noticed at once.
_START_SECONDS = 120.0


@dataclass(frozen=True)
class Prepared:
    """A home that is ready to be started; its lock is held."""

    home: Home
    settings: Settings
    lock: HomeLock
    url: str
    obs_url: str
    # The link that signs the administrator in, once; empty when this was not the first start.
    login_link: str
    # Where the objects lie, if not in the home.
    store_place: str = ""


def prepare(path: Path, given: Mapping[str, Any], environment: Mapping[str, str]) -> Prepared:
    """Check everything, then make or migrate the home. On an error nothing was started."""
    check_host()
    home = Home(path.expanduser().absolute())
    holder = find_holder(home)
    if holder is not None:
        raise Conflict(
            f"The platform of {home.path} is already running, pid {holder or 'unknown'}.",
            hint="`trainshed status` shows it, `trainshed down` stops it.",
            code="already_running",
        )
    read_marker(home)
    settings = load_settings(home, environment, given)
    check_settings(settings)
    check_sandbox(settings)
    settings = choose_ports(check_tls(settings))
    before = set(os.listdir(home.path)) if home.path.is_dir() else set()
    home = make_home(path)
    lock = HomeLock.take(home)
    try:
        write_marker(home)
        settings = prepare_tls(home, settings)
        was_settled = home.external_store.exists()
        login_link = _prepare_state(home, settings)
        # Last: what fails before leaves the place to whoever tries again.
        _claim_store(home, may_be_away=was_settled)
    except BaseException:
        if home.marker.name not in before and not settings.database_url:
            # A first start that failed leaves nothing. (An external database may hold values by now that
            # only the new master key opens: that home stays.)
            _remove_new(home, before)
        lock.release()
        raise
    place = _store_place(home)
    return Prepared(home, settings, lock, api_url(settings), obs_url(settings), login_link, place)


def _store_place(home: Home) -> str:
    from trainshed.services.store_place import external_address

    address = external_address(home)
    return f"{address.place} at {address.endpoint or address.region}" if address else ""


def _claim_store(home: Home, *, may_be_away: bool) -> None:
    """See that the external store, if there is one, can be used, and by this platform alone.

    A first start needs it. Later ones do not wait for an endpoint that is away: it may come back.
    """
    from trainshed.services.store_place import claim_store

    try:
        claim_store(home)
    except Unavailable as fault:
        if not may_be_away or fault.code != "store_unreachable":
            raise


def _remove_new(home: Home, before: set[str]) -> None:
    for name in set(os.listdir(home.path)) - before:
        entry = home.path / name
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
    if not before:
        with contextlib.suppress(OSError):
            home.path.rmdir()


def _prepare_state(home: Home, settings: Settings) -> str:
    """Prepare database, administrator and connection file; returns the login link of a first start."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return _make_first_start(home, settings)
    except OSError as fault:
        raise explain_home_fault(home, fault) from None
    except SQLAlchemyError as fault:
        reason = str(getattr(fault, "orig", None) or fault).strip().splitlines()[0]
        which = "The database of database_url" if settings.database_url else f"The database of {home.path}"
        raise HostUnfit(
            f"{which} cannot be used: {reason}.",
            hint="Check that it runs and that user, password and name are right."
            if settings.database_url
            else "Check the disk; `trainshed restore` brings back a backup.",
            code="database_unusable",
        ) from None


def _make_first_start(home: Home, settings: Settings) -> str:
    from trainshed.services.platform import open_platform
    from trainshed.services.setup import finish_first_start, first_start, issue_admin_access

    platform = open_platform(home, settings)
    try:
        made = first_start(platform)
        token = made.token if made else _working_token(platform)
        if not token:
            made = issue_admin_access(platform)
            token = made.token
        connection = {"url": api_url(settings), "obs_url": obs_url(settings), "token": token}
        if authority := find_authority(home, settings):
            connection["ca"] = str(authority)
        replace_file(home.client, json.dumps(connection, indent=2).encode() + b"\n")
        finish_first_start(platform)
    finally:
        platform.close()
    return f"{api_url(settings)}/login?code={made.login_code}" if made else ""


def _working_token(platform: Platform) -> str:
    """The token of the connection file, if it still opens this platform."""
    from trainshed.services.identity import authenticate_token

    try:
        token = str(json.loads(platform.home.client.read_bytes())["token"])
        authenticate_token(platform, token)
    except (OSError, ValueError, KeyError, TypeError, NotAuthenticated):
        return ""
    return token


def render_banner(prepared: Prepared, *, detached: bool) -> str:
    """What `trainshed up` says when the platform stands."""
    home = prepared.home.path
    default = Path.home() / ".trainshed"
    option = "" if home == default else f" --home {home}"
    lines = [
        f"Trainshed {__version__} is up.",
        "",
        f"  Console, API   {prepared.url}",
        f"  Object store   {prepared.obs_url}",
        f"  Home           {home}",
    ]
    if prepared.store_place:
        lines.append(f"  Objects        {prepared.store_place}")
    if authority := find_authority(prepared.home, prepared.settings):
        lines.append(f"  Trust          {authority} (the CA, for clients)")
    if prepared.settings.rehearse:
        lines.append(f"  Rehearsal      {prepared.settings.rehearse} (pretend devices)")
    if prepared.login_link:
        lines += [
            "",
            f"  Sign in        {prepared.login_link}",
            "                 (works once, as the user admin)",
        ]
    lines += [
        "",
        f"  Next           trainshed{option} run --help (a first job: docs/quick-start.md)",
        "  Stop           " + (f"trainshed{option} down" if detached else "Ctrl-C") + " (running jobs go on)",
    ]
    return "\n".join(lines)


def supervisor_command(prepared: Prepared) -> list[str]:
    """The command line of the supervisor."""
    command = [sys.executable, "-m", "trainshed.daemon.supervisor", "--home", str(prepared.home.path)]
    return command + ["--lock-fd", str(prepared.lock.descriptor)]


def replace_with_supervisor(prepared: Prepared) -> None:
    """Become the supervisor, in the foreground. Does not return."""
    # Exec, not a child: what the preparation imported is gone from memory, and Ctrl-C has one addressee.
    read_end, write_end = os.pipe()
    os.write(write_end, render_banner(prepared, detached=False).encode())
    os.close(write_end)
    os.set_inheritable(prepared.lock.descriptor, True)
    os.set_inheritable(read_end, True)
    command = supervisor_command(prepared) + ["--banner-fd", str(read_end)]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, platform_environment(os.environ, prepared.settings))


def start_detached(prepared: Prepared) -> int:
    """Start the supervisor in the background and wait until the platform stands; returns its process id."""
    log = prepared.home.logs / "supervisor.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            supervisor_command(prepared),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[prepared.lock.descriptor],
            start_new_session=True,
            cwd="/",
            env=platform_environment(os.environ, prepared.settings),
        )
    prepared.lock.release()
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Unavailable(
                "The platform could not start.\n" + read_tail(log),
                hint=f"The whole log: {log}",
                code="start_failed",
            )
        state = read_state(prepared.home)
        if state.get("pid") == process.pid and state.get("ready"):
            # From here on it is nobody's child: no warning about a running process at our exit.
            process.returncode = 0
            return process.pid
        time.sleep(0.03)
    raise Unavailable(
        f"The platform (pid {process.pid}) did not come up within {_START_SECONDS:.0f} s.",
        hint=f"`trainshed status` shows which part is missing; the logs are in {prepared.home.logs}.",
        code="slow_start",
    )


def read_state(home: Home) -> dict[str, Any]:
    """What the supervisor last said about its processes; empty when it said nothing."""
    try:
        state = json.loads(home.state.read_bytes())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}
