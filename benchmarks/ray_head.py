"""A Ray head node in a throw-away environment, for comparison."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

from report import say

__all__ = ["RayHead"]


class RayHead:
    """Ray, installed and started in a temporary folder; stopped and removed at the end."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._folder = tempfile.TemporaryDirectory(prefix="bench-ray-")
        self._bin = Path(self._folder.name) / "venv" / "bin"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RayHead:
        say("installing Ray into a throw-away environment")
        venv = str(self._bin.parent)
        uv = [sys.executable, "-m", "uv"]
        try:
            subprocess.run([*uv, "venv", "-q", "--python", sys.executable, venv], check=True, timeout=120)
            subprocess.run(
                [*uv, "pip", "install", "-q", "--python", str(self._bin / "python"), "ray[default]"],
                check=True,
                timeout=900,
            )
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start(self) -> None:
        say("starting the head")
        log = (Path(self._folder.name) / "head.log").open("wb")
        # With --block all of Ray's processes are children of this one and end with it.
        self._process = subprocess.Popen(
            [
                str(self._bin / "ray"),
                "start",
                "--head",
                "--block",
                f"--port={self._port}",
                f"--dashboard-port={self._port + 1}",
                f"--ray-client-server-port={self._port + 2}",
                f"--min-worker-port={self._port + 20}",
                f"--max-worker-port={self._port + 200}",
                "--dashboard-host=127.0.0.1",
                "--node-ip-address=127.0.0.1",
                "--disable-usage-stats",
                f"--temp-dir={self._folder.name}/ray",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=self._environment(),
        )
        log.close()
        deadline = time.monotonic() + 90
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port + 1), 1).close()
                return
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise RuntimeError("the head of Ray did not come up") from None
                time.sleep(0.2)

    def submit_command(self, script: Path) -> list[str]:
        """The command that submits the script and follows its log."""
        return [
            str(self._bin / "ray"),
            "job",
            "submit",
            "--address",
            f"http://127.0.0.1:{self._port + 1}",
            "--",
            str(self._bin / "python"),
            str(script),
        ]

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._folder.cleanup()

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self._bin}:{os.environ.get('PATH', '')}"}
