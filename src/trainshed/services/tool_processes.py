"""The processes of hosted tools: started when somebody looks, ended when nobody has for a while."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainshed.model.tool import ToolState
from trainshed.runner.tools.tool_run import ToolFolder

__all__ = ["ToolProcesses"]

_STOP_SECONDS = 5.0
_MOST_TOOLS = 32


@dataclass
class _Running:
    process: subprocess.Popen[bytes]
    folder: ToolFolder
    last_used: float
    # Requests under way: a tool that somebody waits for is not idle.
    users: int = 0
    asked_to_end: float = 0.0


class ToolProcesses:
    """All tools that run at the moment, by their ids."""

    def __init__(self, root: Path, idle_seconds: float) -> None:
        self._root = root
        self._idle_seconds = idle_seconds
        self._running: dict[str, _Running] = {}
        # Visitors come on the event loop, the sweep on a thread of its own.
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._running)

    def ensure(self, tool: str) -> ToolState:
        """Start a tool unless it runs; how far it has come. A tool without a plan was stopped."""
        with self._lock:
            return self._ensure(tool)

    def _ensure(self, tool: str) -> ToolState:
        folder = ToolFolder(self._root / tool)
        found = self._running.get(tool)
        if found is not None and found.process.poll() is not None:
            state = folder.read_state()
            self._forget(tool)
            if state.stage == "failed":
                return state
            if found.process.returncode and not found.asked_to_end:
                return ToolState(
                    "failed", "It ended unexpectedly; load the page again to start it once more."
                )
            found = None
        if not folder.plan.exists():
            return ToolState("failed", "It was stopped.")
        if found is not None and found.asked_to_end:
            return ToolState("starting", "It ends and begins again.")
        if found is None and len(self._running) >= _MOST_TOOLS:
            return ToolState(
                "failed", "Too many tools are open at the moment; close some, or try again later."
            )
        if found is None:
            folder.state.unlink(missing_ok=True)
            folder.socket.unlink(missing_ok=True)
            process = subprocess.Popen(
                [sys.executable, "-m", "trainshed.runner.tools.tool_run", str(folder.path), str(os.getpid())],
                stdin=subprocess.DEVNULL,
            )
            found = self._running[tool] = _Running(process, folder, time.monotonic())
        found.last_used = time.monotonic()
        return folder.read_state()

    @contextlib.contextmanager
    def use(self, tool: str) -> Iterator[None]:
        """As long as this is open, the tool is not idle."""
        found = self._running.get(tool)
        if found is not None:
            found.users += 1
        try:
            yield
        finally:
            if found is not None:
                found.users -= 1
                found.last_used = time.monotonic()

    def open_socket(self, tool: str) -> int | None:
        """The tool's socket, as a descriptor to connect through; None while there is none.

        By descriptor: what stands in the socket's place is made by the tool, and must not be a link to elsewhere.
        """
        try:
            descriptor = os.open(
                ToolFolder(self._root / tool).socket, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
            )
        except OSError:
            return None
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return None
        return descriptor

    def sweep(self) -> None:
        """End tools that nobody uses, whose plan is gone, or that have ended themselves. Does not wait."""
        with self._lock:
            self._sweep(time.monotonic())

    def _sweep(self, now: float) -> None:
        for tool, found in list(self._running.items()):
            if found.process.poll() is not None:
                self._forget(tool)
            elif found.asked_to_end:
                if now - found.asked_to_end > _STOP_SECONDS:
                    found.process.kill()
            elif not found.folder.plan.exists() or (
                not found.users and now - found.last_used > self._idle_seconds
            ):
                found.asked_to_end = now
                found.process.terminate()

    async def close(self) -> None:
        """End all tools."""
        deadline = time.monotonic() + _STOP_SECONDS
        for found in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                found.process.terminate()
        while self._running and time.monotonic() < deadline:
            self.sweep()
            await asyncio.sleep(0.05)
        for tool, found in list(self._running.items()):
            found.process.kill()
            found.process.wait()
            self._forget(tool)

    def _forget(self, tool: str) -> None:
        found = self._running.pop(tool)
        for name in ("mirror", "root", "socket", "stage"):
            shutil.rmtree(found.folder.path / name, ignore_errors=True)
