"""The two object stores that benchmarks compare, each in processes of its own: ours, and a real SeaweedFS."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from urllib.request import urlopen

from measured_platform import plain_environment

from trainshed.db.engine import begin
from trainshed.model.home import Home
from trainshed.model.settings import Settings
from trainshed.services.access_keys import issue_access_key
from trainshed.services.identity import authenticate_token
from trainshed.services.platform import open_platform
from trainshed.services.setup import first_start

# The tests start the same server.
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from seaweedfs import SeaweedServer, find_weed

__all__ = ["MeasuredStore", "SeaweedFS", "SyncedSeaweedFS", "TrainshedStore", "find_weed", "peak_memory_mb"]

_START_SECONDS = 60.0
_given: list[int] = []


def free_ports(count: int) -> list[int]:
    """Free ports of loopback, below those that SeaweedFS adds 10,000 to for its own use."""
    found: list[int] = []
    for port in range(max([21_099, *_given]) + 1, 22_700):
        with socket.socket() as probe, socket.socket() as second:
            try:
                probe.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            _given.extend(found)
            return found
    raise RuntimeError("There are no free ports.")


def peak_memory_mb(pid: int) -> float:
    """The most memory that a process ever had resident."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_seconds(pid: int) -> float:
    """The processor time that a process and the children it has now have used."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(cpu_seconds(int(child)) for child in children)


class MeasuredStore:
    """A store with one process, an S3 endpoint and a pair of keys. A context manager."""

    name = ""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bench-"))
        self.url = ""
        self.access_key = "benchmarkbenchmark01"
        self.secret_key = "benchmark-secret-benchmark-secret-012345"
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """The command that serves."""
        raise AssertionError

    def __enter__(self) -> MeasuredStore:
        try:
            log = (self.folder / "log").open("wb")
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, env=self.environment(), cwd=self.folder
            )
            log.close()
            self._wait()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def environment(self) -> dict[str, str]:
        """The variables of the process."""
        return plain_environment()

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(timeout=20)
        shutil.rmtree(self.folder, ignore_errors=True)

    def peak_mb(self) -> float:
        """The most memory that the process ever had."""
        assert self.process is not None
        return peak_memory_mb(self.process.pid)

    def cpu_seconds(self) -> float:
        """The processor time that it has used so far."""
        assert self.process is not None
        return cpu_seconds(self.process.pid)

    def client_environment(self) -> dict[str, str]:
        """What S3 clients read."""
        return {
            **plain_environment(),
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
            "S3_ENDPOINT_URL": self.url,
        }

    def _wait(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urlopen(self.url, timeout=2):
                    return
            except OSError as fault:
                # Any answer will do: an anonymous request is refused.
                if getattr(fault, "code", None):
                    return
                time.sleep(0.1)
        raise RuntimeError(f"{self.name} did not start:\n{(self.folder / 'log').read_text()[-2000:]}")


class TrainshedStore(MeasuredStore):
    """Our store process in a home of its own."""

    name = "Trainshed"

    def __init__(self) -> None:
        super().__init__()
        self.home = Home(self.folder / "home")
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        platform = open_platform(self.home, Settings())
        self.token = first_start(platform).token
        caller = authenticate_token(platform, self.token)
        with begin(platform.engine) as connection:
            pair = issue_access_key(platform, connection, caller.user_id, caller.workspace_id, "benchmark")
        self.access_key, self.secret_key = pair.access_key, pair.secret_key
        platform.close()
        self._port = port

    def command(self) -> list[str]:
        return [sys.executable, "-m", "trainshed.daemon.store_process", "--home", str(self.home.path)]

    def environment(self) -> dict[str, str]:
        return {**plain_environment(), "TRAINSHED_OBS_PORT": str(self._port)}


class SeaweedFS(MeasuredStore):
    """A real SeaweedFS of one server, as its own documentation starts it."""

    name = "SeaweedFS"

    def __init__(self, weed: Path) -> None:
        super().__init__()
        keys = (self.access_key, self.secret_key)
        self._server = SeaweedServer(self.folder, weed, free_ports(4), keys)
        self.url = self._server.endpoint.url

    def command(self) -> list[str]:
        (self.folder / "data").mkdir()
        return self._server.command()

    def environment(self) -> dict[str, str]:
        return {**plain_environment(), "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}

    def _wait(self) -> None:
        super()._wait()
        # It answers before it can write: its parts find each other a little later.
        time.sleep(3)


class SyncedSeaweedFS(SeaweedFS):
    """The same, but told to make every write durable before it answers, as our store does."""

    name = "SeaweedFS, synced"

    def _wait(self) -> None:
        super()._wait()
        self._server.configure("fs.configure -locationPrefix=/buckets/ -fsync -apply")
