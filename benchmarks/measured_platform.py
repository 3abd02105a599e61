"""A platform of its own for every benchmark: started in a temporary home, stopped at the end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

from trainshed import Client
from trainshed.model.home import Home

__all__ = ["MeasuredPlatform", "plain_environment"]


def plain_environment() -> dict[str, str]:
    """The environment of a user: none of our settings, and Python keeps the modules that it compiles."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("TRAINSHED_") and name != "PYTHONDONTWRITEBYTECODE"
    }


class MeasuredPlatform:
    """A real platform on free ports of loopback. A context manager."""

    def __init__(
        self,
        *,
        rehearse: str = "",
        folder: Path | None = None,
        settings: str = "",
        variables: dict[str, str] | None = None,
    ) -> None:
        self._base = Path(tempfile.mkdtemp(prefix="bench-", dir=folder))
        self.home = Home(self._base / "home")
        self._options = ["--rehearse", rehearse] if rehearse else []
        self._variables = variables or {}
        if settings:
            self.home.path.mkdir(mode=0o700)
            self.home.settings.write_text(settings)

    def __enter__(self) -> MeasuredPlatform:
        ports = ["--port", "0", "--obs-port", "0"]
        try:
            self.cli("up", "--detach", *ports, *self._options, timeout=90)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.home.path.exists():
            try:
                self._stop_jobs()
                self.cli("down", timeout=60)
            finally:
                shutil.rmtree(self._base, ignore_errors=True)
        shutil.rmtree(self._base, ignore_errors=True)

    def cli(self, command: str, *arguments: str, timeout: float = 60) -> str:
        """Run a `trainshed` command of this home and return what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "trainshed.cli.main", command, "--home", str(self.home.path), *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env={**plain_environment(), **self._variables},
        )
        if done.returncode:
            raise RuntimeError(f"trainshed {command} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def client(self) -> Client:
        """A client with the administrator's token."""
        saved = json.loads(self.home.client.read_bytes())
        return Client(saved["url"], saved["token"])

    def pids(self) -> dict[str, int]:
        """The platform's own processes."""
        state = json.loads(self.home.state.read_bytes())
        return {"supervisor": state["pid"], **{part["name"]: part["pid"] for part in state["processes"]}}

    def close_fork_server(self) -> None:
        """Make the fork server unreachable, as if it were dead: runners are started directly from now on."""
        self.home.fork_socket.rename(self.home.fork_socket.with_suffix(".closed"))

    def open_fork_server(self) -> None:
        """Make it reachable again."""
        self.home.fork_socket.with_suffix(".closed").rename(self.home.fork_socket)

    def _stop_jobs(self) -> None:
        """Runners outlive their platform by design; a benchmark leaves none behind."""
        try:
            with self.client() as client:
                left = [job for job in client.jobs(limit=200) if not job.is_ended]
                for job in left:
                    client.stop(job.id)
                deadline = time.monotonic() + 45
                for job in left:
                    client.wait(job.id, timeout=max(0.1, deadline - time.monotonic()))
        except Exception as fault:
            print(f"jobs could not be stopped: {fault}", file=sys.stderr)
