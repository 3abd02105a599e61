"""The process that serves hosted tools from an origin of their own: started when a tool is first opened."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from trainshed.model.errors import Unavailable
from trainshed.services.platform import Platform

__all__ = ["claim_tool_server", "ensure_tool_server", "tools_url"]

# Less than clients wait for an answer; a busy machine takes long to start a process.
_START_SECONDS = 50.0
_starting = threading.Lock()
_children: list[subprocess.Popen[bytes]] = []


def ensure_tool_server(platform: Platform) -> str:
    """Start the server of tools unless it runs; the URL at which people reach it."""
    if platform.settings.tools_port < 0:
        raise Unavailable(
            "This platform hosts no tools.",
            hint="The administrator turns them on with the setting tools_port.",
            code="tools_off",
        )
    with _starting:
        _children[:] = [child for child in _children if child.poll() is None]
        if not _is_claimed(platform) or _read_port(platform) is None:
            _start(platform)
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            port = _read_port(platform) if _is_claimed(platform) else None
            if port is not None:
                return tools_url(platform, port)
            if _children and _children[-1].poll() not in (None, 0):
                break
            time.sleep(0.05)
    raise Unavailable(
        "The server of hosted tools did not start.",
        hint=f"The administrator finds the reason in {platform.home.logs / 'tools.log'}: "
        f"is port {platform.settings.tools_port} (setting tools_port) free?",
        code="tools_unavailable",
    )


def tools_url(platform: Platform, port: int) -> str:
    """Where people reach hosted tools: never the address of the console."""
    settings = platform.settings
    if settings.public_tools_url:
        return settings.public_tools_url.rstrip("/")
    host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    scheme = "https" if settings.serves_tls else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def claim_tool_server(platform: Platform) -> int | None:
    """Become the one server of tools of this platform: a descriptor to keep, or None if there is one."""
    descriptor = os.open(_lock(platform), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _start(platform: Platform) -> None:
    _state(platform).unlink(missing_ok=True)
    platform.home.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (platform.home.logs / "tools.log").open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "trainshed.daemon.tools_process", "--home", str(platform.home.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={
                **os.environ,
                "TRAINSHED_TOOLS_PORT": str(platform.settings.tools_port),
                "TRAINSHED_HOST": platform.settings.host,
            },
        )
    _children.append(child)


def _is_claimed(platform: Platform) -> bool:
    descriptor = claim_tool_server(platform)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def _read_port(platform: Platform) -> int | None:
    try:
        return int(json.loads(_state(platform).read_text("utf-8"))["port"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _lock(platform: Platform) -> Path:
    folder = platform.home.run / "tools"
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    return folder / "server.lock"


def _state(platform: Platform) -> Path:
    return platform.home.run / "tools" / "server.json"
