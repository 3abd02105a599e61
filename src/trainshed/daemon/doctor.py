"""Is this host fit to run the platform? Each finding says what was found and how to mend it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from trainshed.daemon.home_folder import find_holder, load_settings, read_marker
from trainshed.daemon.preflight import INSTALL_SERVER, SERVER_MODULES, is_port_free
from trainshed.model.errors import TrainshedError
from trainshed.model.home import Home
from trainshed.model.settings import Settings

__all__ = ["Finding", "examine_host"]

Level = Literal["ok", "warn", "bad"]

_LITTLE_DISK_GB = 10.0
_NO_DISK_GB = 1.0


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    subject: str
    message: str
    fix: str = ""

    def to_dict(self) -> dict[str, str]:
        """The finding as plain data."""
        return asdict(self)


def examine_host(home: Home, environment: Mapping[str, str]) -> list[Finding]:
    """Look at everything the platform needs. Changes nothing but short-lived files in the home."""
    findings = list(_examine_system())
    if any(finding.subject == "system" and finding.level == "bad" for finding in findings):
        # The rest asks Linux.
        return findings
    settings = Settings()
    try:
        read_marker(home)
        settings = load_settings(home, environment, {})
        findings.append(_examine_home(home))
    except TrainshedError as fault:
        findings.append(Finding("bad", "home", fault.message, fault.hint))
    findings += _examine_sandbox(home, settings)
    findings.append(_examine_disk(home))
    findings += _examine_store(home, settings)
    findings += _examine_ports(home, settings)
    if settings.serves_tls:
        findings.append(_examine_certificate(home, settings))
    findings += _examine_devices(settings)
    return findings


def _examine_system() -> Iterator[Finding]:
    if sys.platform == "linux":
        yield Finding("ok", "system", f"Linux {platform.release()} on {platform.machine()}")
    else:
        yield Finding("bad", "system", f"{platform.system()} cannot run the server", "Use a Linux machine.")
    yield Finding("ok", "python", f"{platform.python_version()} at {sys.executable}")
    missing = [name for name in SERVER_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        yield Finding("bad", "packages", f"missing: {', '.join(missing)}", INSTALL_SERVER)
    else:
        yield Finding("ok", "packages", "the server's packages are installed")
    yield _examine_program("git", "Code and model repositories need it: apt-get install git.", "warn")
    yield _examine_program("uv", f"Job environments need it. {INSTALL_SERVER}", "bad")


def _examine_program(name: str, fix: str, level: Level) -> Finding:
    # uv is a package of the virtual environment, whose bin folder need not be on the PATH.
    beside = str(Path(sys.executable).parent)
    program = shutil.which(name, path=f"{beside}:{os.environ.get('PATH', '/usr/bin:/bin')}")
    if program is None:
        return Finding(level, name, "not installed", fix)
    try:
        answer = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError) as fault:
        return Finding(level, name, f"{program} does not work: {fault}", fix)
    return Finding("ok", name, answer.stdout.strip().removeprefix(f"{name} "))


def _examine_home(home: Home) -> Finding:
    place = _existing(home.path)
    if not os.access(place, os.W_OK | os.X_OK):
        return Finding("bad", "home", f"{place} may not be written", "Name another folder with --home.")
    if home.path.exists() and home.path.stat().st_uid != os.geteuid():
        return Finding("warn", "home", f"{home.path} belongs to another user", "Run as its owner.")
    return Finding(
        "ok", "home", f"{home.path}" + ("" if home.path.exists() else " (made at the first start)")
    )


def _examine_sandbox(home: Home, settings: Settings) -> Iterator[Finding]:
    from trainshed.runner.sandbox.fitness import probe_host

    for probe in probe_host(_existing(home.path), settings.job_uid_base if os.geteuid() == 0 else None):
        if probe.is_well:
            yield Finding("ok", probe.name, probe.found)
        else:
            weak = not probe.is_needed or settings.allow_unsandboxed
            yield Finding("warn" if weak else "bad", probe.name, probe.found, probe.fix)


def _examine_disk(home: Home) -> Finding:
    usage = shutil.disk_usage(_existing(home.path))
    free = usage.free / 1e9
    message = f"{free:.1f} of {usage.total / 1e9:.1f} GB free below {_existing(home.path)}"
    if free < _NO_DISK_GB:
        return Finding("bad", "disk", message, "Free some space, or name another disk with --home.")
    if free < _LITTLE_DISK_GB:
        return Finding("warn", "disk", message, "Frameworks take 1 to 3 GB each: have 10 GB free.")
    return Finding("ok", "disk", message)


def _examine_store(home: Home, settings: Settings) -> Iterator[Finding]:
    from trainshed.services.store_place import external_address
    from trainshed.store.external.address import Credentials, parse_place
    from trainshed.store.external.examination import examine_endpoint

    try:
        address = external_address(home)
        keys = None
        if settings.store_access_key and settings.store_secret_key:
            keys = Credentials(settings.store_access_key, settings.store_secret_key)
        if settings.store_url:
            address = parse_place(
                settings.store_url,
                endpoint=settings.store_endpoint,
                region=settings.store_region,
                keys=str(home.external_store),
            )
    except TrainshedError as fault:
        yield Finding("bad", "store", fault.message, fault.hint)
        return
    if address is None:
        return
    for probe in examine_endpoint(address, keys):
        level: Level = "ok" if probe.is_well else "bad" if probe.is_needed else "warn"
        yield Finding(level, "store", probe.found, "" if probe.is_well else probe.fix)


def _examine_ports(home: Home, settings: Settings) -> Iterator[Finding]:
    try:
        running = find_holder(home) is not None
    except TrainshedError:
        running = False
    for name, port, option in (
        ("port", settings.port, "--port"),
        ("obs port", settings.obs_port, "--obs-port"),
    ):
        if running:
            yield Finding("ok", name, f"the platform of this home runs (settings: {port})")
        elif port == 0 or is_port_free(settings.host, port):
            yield Finding("ok", name, f"{settings.host}:{port} is free")
        else:
            fix = f"Choose another one with {option}; `ss -ltnp` shows who has it."
            yield Finding("bad", name, f"{settings.host}:{port} is in use", fix)


def _examine_certificate(home: Home, settings: Settings) -> Finding:
    from trainshed.services.certificates import check_pair, now_utc

    own = not settings.tls_certificate
    if own and not home.tls_certificate.exists():
        return Finding("ok", "certificate", "made at the next start, from the platform's own CA")
    path, key = (
        (home.tls_certificate, home.tls_key)
        if own
        else (Path(settings.tls_certificate), Path(settings.tls_key))
    )
    try:
        found = check_pair(path, key, now_utc())[0]
    except TrainshedError as fault:
        # Our own is mended at the start.
        return Finding("warn" if own else "bad", "certificate", fault.message, fault.hint)
    days = (found.ends - now_utc()).days
    message = f"{path} is valid for {days} days, for {', '.join(found.names[:4])}"
    if days < 14 and not own:
        return Finding("warn", "certificate", message, "Renew it; the servers take it up within a minute.")
    return Finding("ok", "certificate", message)


def _examine_devices(settings: Settings) -> Iterator[Finding]:
    from trainshed.runner.inventory import describe_node

    try:
        node = describe_node(rehearse=settings.rehearse)
    except TrainshedError as fault:
        yield Finding("bad", "devices", fault.message, fault.hint)
        return
    yield Finding("ok", "processors", f"{node.cpus:g} cores, {node.memory_mb / 1024:.1f} GiB of memory")
    kinds = {device.kind: device for device in node.devices}
    if not kinds:
        yield Finding(
            "ok",
            "devices",
            "no NVIDIA or Ascend device: jobs run on the CPU (--rehearse declares pretend ones)",
        )
    for kind, device in kinds.items():
        pretend = ", pretend" if device.pretend else ""
        yield Finding("ok", "devices", f"{node.count(kind)} x {kind} {device.model}{pretend}".rstrip())


def _existing(path: Path) -> Path:
    """The path itself, or the nearest folder above it that is there."""
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path
