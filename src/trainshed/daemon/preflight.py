"""The checks before a platform starts: each fault is one clear error, found before anything is made."""

from __future__ import annotations

import importlib.util
import os
import secrets
import socket
import time
from dataclasses import replace

from trainshed.model.errors import Conflict, HostUnfit, InvalidInput
from trainshed.model.flavor import parse_rehearsal
from trainshed.model.settings import Settings

__all__ = [
    "INSTALL_SERVER",
    "SERVER_MODULES",
    "check_host",
    "check_sandbox",
    "check_settings",
    "choose_ports",
    "find_free_port",
    "is_port_free",
]

# What `trainshed up` imports beside the packages that the command line has anyway.
SERVER_MODULES = (
    "alembic",
    "anycrc",
    "argon2",
    "asyncssh",
    "cryptography",
    "fastapi",
    "granian",
    "httptools",
    "jinja2",
    "sqlalchemy",
    "uvloop",
)
# Nothing is published under that name yet: a package index would have a stranger's, or none.
INSTALL_SERVER = "In a checkout of Trainshed: pip install '.[server]'"
_PORT_WAIT_SECONDS = 3.0
# A port given out here is bound a moment later: until then no outgoing connection may happen to get it.
_QUIET_PORTS = range(24000, 32000)


def check_host() -> None:
    """Refuse a host that lacks the server's packages."""
    missing = [name for name in SERVER_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise HostUnfit(
            f"The server's packages are not installed: {', '.join(missing)}.",
            hint=INSTALL_SERVER,
            code="missing_packages",
        )


def check_sandbox(settings: Settings) -> None:
    """Refuse a host on which jobs could not be walled off, unless that was allowed."""
    from trainshed.runner.sandbox.fitness import probe_bubblewrap, probe_user_namespaces

    if settings.allow_unsandboxed:
        return
    user = settings.job_uid_base if os.geteuid() == 0 else None
    for finding in (probe_bubblewrap(), probe_user_namespaces(user)):
        if not finding.is_well:
            raise HostUnfit(
                f"Jobs cannot be walled off from this machine: {finding.name}: {finding.found}.",
                hint=f"{finding.fix} `trainshed doctor` checks again; --allow-unsandboxed does without.",
                code="no_sandbox",
            )


def check_settings(settings: Settings) -> None:
    """Refuse settings that could only fail later."""
    from trainshed.daemon.slurm_check import check_pools
    from trainshed.services.store_place import check_store_settings

    check_store_settings(settings)
    check_pools(settings)
    if settings.rehearse:
        parse_rehearsal(settings.rehearse)
    if settings.port == settings.obs_port and settings.port != 0:
        raise InvalidInput(
            f"The API and the object store cannot share port {settings.port}.",
            hint="Give --port and --obs-port different numbers.",
            where="--obs-port",
        )
    try:
        socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
    except OSError:
        raise InvalidInput(
            f"'{settings.host}' is not an address of this machine.",
            hint="Use 127.0.0.1 (this machine only) or 0.0.0.0 (every network).",
            where="--host",
        ) from None


def choose_ports(settings: Settings) -> Settings:
    """The settings with both ports known to be free; port 0 becomes any free one."""
    port = _usable_port(settings.host, settings.port, "--port")
    obs_port = _usable_port(settings.host, settings.obs_port, "--obs-port", not_this=port)
    if settings.ssh_port:
        _usable_port(settings.host, settings.ssh_port, "ssh_port")
    return replace(settings, port=port, obs_port=obs_port)


def _usable_port(host: str, port: int, option: str, not_this: int = -1) -> int:
    if port == 0:
        while (found := find_free_port(host)) == not_this:
            pass
        return found
    # The processes of a platform that was killed a moment ago may still be on their way out.
    deadline = time.monotonic() + _PORT_WAIT_SECONDS
    while (fault := _try_port(host, port)) is not None:
        if not isinstance(fault, PermissionError) and time.monotonic() < deadline:
            time.sleep(0.1)
            continue
        if isinstance(fault, PermissionError):
            raise HostUnfit(
                f"Port {port} may not be used by this user.",
                hint=f"Choose a port above 1023 with {option}.",
                code="port_forbidden",
                where=option,
            )
        raise Conflict(
            f"Port {port} of {host} is in use or not available: {fault.strerror}.",
            hint=f"Choose another one with {option} (0 takes any free one); `ss -ltnp` shows who has it.",
            code="port_in_use",
            where=option,
        )
    return port


def is_port_free(host: str, port: int) -> bool:
    """Whether this host could listen there now."""
    return _try_port(host, port) is None


def _try_port(host: str, port: int) -> OSError | None:
    try:
        with _bound(host, port):
            return None
    except OSError as fault:
        return fault


def find_free_port(host: str) -> int:
    """A port that nobody uses, outside the range from which the kernel takes ports for outgoing connections."""
    for _ in range(100):
        port = _QUIET_PORTS.start + secrets.randbelow(len(_QUIET_PORTS))
        if is_port_free(host, port):
            return port
    try:
        with _bound(host, 0) as probe:
            return int(probe.getsockname()[1])
    except OSError as fault:
        raise HostUnfit(
            f"No port of {host} can be used: {fault.strerror}.", hint="Choose another --host.", where="--host"
        ) from None


def _bound(host: str, port: int) -> socket.socket:
    probe = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        probe.listen(1)
    except BaseException:
        probe.close()
        raise
    return probe
