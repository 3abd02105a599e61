"""Whether this machine can wall jobs off and limit them, and what an administrator can do if not."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainshed.model.errors import HostUnfit
from trainshed.runner.sandbox import namespace
from trainshed.runner.sandbox.bubblewrap import INSTALL, find_bubblewrap
from trainshed.runner.sandbox.control_group import WANTED, ControlGroup, find_parents

__all__ = [
    "Finding",
    "probe_bubblewrap",
    "probe_control_groups",
    "probe_host",
    "probe_overlay",
    "probe_user_namespaces",
    "require_user_namespaces",
]

PROBE_SECONDS = 10


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: is it well, what was found, and the fix if it is not.

    `is_needed` is False for what the platform can do without, at a price that `fix` names.
    """

    name: str
    is_well: bool
    found: str
    fix: str = ""
    is_needed: bool = True


def probe_host(folder: Path, user: int | None = None) -> list[Finding]:
    """Everything the sandbox needs. `folder` is the platform's home; `user` the unprivileged uid that jobs
    get when the platform runs as root."""
    return [probe_bubblewrap(), probe_user_namespaces(user), probe_overlay(folder), probe_control_groups()]


def probe_bubblewrap() -> Finding:
    """Is bubblewrap installed, and new enough to forbid user namespaces inside a job?"""
    try:
        program = find_bubblewrap()
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=PROBE_SECONDS)
    except (HostUnfit, OSError, subprocess.TimeoutExpired):
        return Finding("bubblewrap", False, "not installed", f"Install it: {INSTALL}.")
    version = answer.stdout.strip().rpartition(" ")[2]
    if read_version(version) < (0, 8):
        return Finding("bubblewrap", False, f"{version} at {program}", "Version 0.8 or later is needed.")
    return Finding("bubblewrap", True, f"{version} at {program}")


def probe_user_namespaces(user: int | None = None) -> Finding:
    """Can an ordinary user make a user namespace, as every job needs one?"""
    name = "user namespaces"
    try:
        command = [find_bubblewrap(), "--unshare-user", "--unshare-pid", "--unshare-net", "--disable-userns"]
        command += ["--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--", "/bin/true"]
        is_root = os.geteuid() == 0 and user is not None
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            stdin=subprocess.DEVNULL,
            cwd="/",
            user=user if is_root else None,
            group=user if is_root else None,
            extra_groups=[] if is_root else None,
        )
    except HostUnfit as error:
        return Finding(name, False, "not tried: bubblewrap is missing", error.hint)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(name, False, str(error), namespace.describe_namespace_fix())
    if answer.returncode != 0:
        said = answer.stderr.strip().splitlines()
        return Finding(name, False, said[-1] if said else "refused", namespace.describe_namespace_fix())
    return Finding(name, True, "work")


def require_user_namespaces(user: int | None = None) -> None:
    """Raise HostUnfit where jobs cannot have user namespaces."""
    finding = probe_user_namespaces(user)
    if not finding.is_well:
        raise HostUnfit(f"User namespaces do not work: {finding.found}.", hint=finding.fix)


def probe_overlay(folder: Path) -> Finding:
    """Can inputs be given to jobs as overlays of one shared tree, on the file system of `folder`?"""
    name = "overlay"
    price = "Inputs are copied for every job: correct, but slow for large ones."
    try:
        with tempfile.TemporaryDirectory(prefix=".overlay-", dir=folder) as place:
            for part in ("lower", "upper", "work", "merged"):
                (Path(place) / part).mkdir()
            reason = run_apart(lambda: try_overlay(Path(place)))
            # The kernel makes a folder in `work` that only its owner in the namespace could enter.
            shutil.rmtree(Path(place) / "work", ignore_errors=True)
    except OSError as error:
        reason = str(error)
    if not reason:
        return Finding(name, True, "works", is_needed=False)
    fix = f"{price} Needs Linux 5.11 (as root: 5.19) and ext4, xfs or btrfs below the platform's home."
    return Finding(name, False, reason, fix, is_needed=False)


def try_overlay(place: Path) -> None:
    """Mount an overlay the way a job's inputs are mounted."""
    namespace.enter_private_namespace()
    lower = os.open(place / "lower", os.O_PATH | os.O_CLOEXEC)
    shown = str(place / "lower")
    if os.geteuid() == 0:
        users, helper = namespace.open_user_namespace((0, 0), (65534, 65534))
        namespace.bind_with_owner(lower, place / "lower", users)
        os.waitpid(helper, 0)
    namespace.mount_overlay(shown, str(place / "upper"), str(place / "work"), place / "merged")
    (place / "merged" / "written").touch()


def probe_control_groups() -> Finding:
    """Can the memory, processes and CPU of a job be limited by the kernel?"""
    name = "control groups"
    group = ControlGroup()
    found = group.controllers
    group.remove()
    missing = [controller for controller in WANTED if controller not in found]
    if not missing:
        return Finding(name, True, f"limit {', '.join(found)}", is_needed=False)
    fix = (
        "Without them limits are softer: memory is watched once a second, CPU limited to whole processors. "
        "As a systemd service: set Delegate=yes; in a login session: systemd-run --user --scope -p Delegate=yes."
    )
    where = "no group is writable" if not find_parents() else f"not writable: {', '.join(missing)}"
    return Finding(name, False, where, fix, is_needed=False)


def run_apart(action: Callable[[], None]) -> str:
    """Call a function in a child process, whose namespaces may change; returns the error's text."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            action()
        except BaseException as error:
            os.write(write, (str(error) or type(error).__name__).encode()[:2000])
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        text = answer.read().decode(errors="replace")
    os.waitpid(child, 0)
    return text


def read_version(text: str) -> tuple[int, ...]:
    """A version as numbers; unreadable parts count as zero."""
    return tuple(int(part) if part.isdigit() else 0 for part in text.split("."))
