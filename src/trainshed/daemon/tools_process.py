"""The process that serves hosted tools: it begins when a tool is first opened, and ends when none is left."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import threading
import time

from trainshed.daemon.home_folder import find_holder
from trainshed.daemon.http_server import serve
from trainshed.daemon.process import begin
from trainshed.daemon.tls import watch_certificate

__all__ = ["main"]

_LOOK_SECONDS = 1.0
_CLAIM_SECONDS = 2.0
# How long the server waits for a next visitor after the last tool has ended.
_LINGER_SECONDS = 120.0


def main() -> int:
    """Serve until no tool is left, SIGTERM, or the end of the platform."""
    process = begin("tools")
    from trainshed.api.endpoints.app import create_tools_app
    from trainshed.durable import write_durably
    from trainshed.services.platform import open_platform
    from trainshed.services.tool_processes import ToolProcesses
    from trainshed.services.tool_server import claim_tool_server

    platform = open_platform(process.home, process.settings)
    # Whoever asks whether there is a server holds the lock for an instant: one refusal alone proves nothing.
    deadline = time.monotonic() + _CLAIM_SECONDS
    claim = claim_tool_server(platform)
    while claim is None and time.monotonic() < deadline:
        time.sleep(0.02)
        claim = claim_tool_server(platform)
    if claim is None:
        return 0
    root = platform.home.run / "tools"
    _clear_old(root)
    processes = ToolProcesses(root, process.settings.tools_idle_minutes * 60.0)
    host = process.settings.host
    port = process.settings.tools_port or _free_port(host)

    def look() -> None:
        """End idle tools, and this process with the last of them or with the platform."""
        empty_since = time.monotonic()
        while True:
            time.sleep(_LOOK_SECONDS)
            processes.sweep()
            if len(processes):
                empty_since = time.monotonic()
            is_over = time.monotonic() - empty_since > _LINGER_SECONDS
            if is_over or find_holder(process.home) is None:
                logging.getLogger("trainshed").info("No tool is left, or the platform is down: ending.")
                os.kill(os.getpid(), signal.SIGTERM)
                return

    def ready() -> None:
        write_durably(root / "server.json", {"port": port, "pid": os.getpid()})
        threading.Thread(target=look, daemon=True).start()

    try:
        serve(
            create_tools_app(platform, processes),
            host,
            port,
            ready,
            stop_seconds=1,
            websockets=True,
            tls=watch_certificate(process.home, process.settings),
        )
    finally:
        (root / "server.json").unlink(missing_ok=True)
        asyncio.run(processes.close())
        os.close(claim)
    return 0


def _clear_old(root: os.PathLike[str]) -> None:
    """Remove what tools of an earlier server left; their plans stay, so that open pages go on."""
    for entry in os.scandir(root):
        if entry.is_dir() and entry.name not in ("used", "revoked"):
            for name in ("mirror", "root", "socket", "stage"):
                shutil.rmtree(os.path.join(entry.path, name), ignore_errors=True)


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    raise SystemExit(main())
