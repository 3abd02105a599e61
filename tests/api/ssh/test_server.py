"""The platform's own ssh port, with the machine's ssh client."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trainshed.model.errors import Unavailable

pytestmark = pytest.mark.slow

SCRIPT = """
import pathlib, socket, threading, time
server = socket.create_server(("127.0.0.1", 4000))
def serve():
    while True:
        server.accept()[0].sendall(b"inside\\n")
threading.Thread(target=serve, daemon=True).start()
time.sleep(600)
"""


@dataclass(frozen=True)
class Port:
    """A platform with an ssh port, a running job called `open`, and a folder with keys."""

    platform: Any
    number: int
    keys: Path

    def options(self, key: str = "id") -> list[str]:
        return [
            *("-F", "/dev/null", "-i", str(self.keys / key), "-o", "IdentitiesOnly=yes"),
            *("-o", "StrictHostKeyChecking=yes", "-o", f"UserKnownHostsFile={self.keys / 'known_hosts'}"),
            *("-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-o", f"Port={self.number}"),
        ]

    def run(self, *arguments: str, key: str = "id", **more: Any) -> subprocess.CompletedProcess[str]:
        command = [arguments[0], *self.options(key), *arguments[1:]]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **more)


@pytest.fixture(scope="module")
def port(support: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port]:
    folder = tmp_path_factory.mktemp("port")
    for name in ("id", "stranger"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "code").mkdir()
    (folder / "code" / "train.py").write_text(SCRIPT)
    number = support.free_port()
    home = folder / "home"
    try:
        platform = support.start_platform(home, environment={"TRAINSHED_SSH_PORT": str(number)})
        with platform.client() as client:
            client.add_ssh_key((folder / "id.pub").read_text())
            job = {"name": "open", "code": str(folder / "code"), "boot": "train.py", "ssh": True}
            made = client.submit(job)
            support.wait_until(is_ready(client), seconds=180, what="the job is not ready for ssh")
            scanned = subprocess.run(
                ["ssh-keyscan", "-T", "90", "-p", str(number), "127.0.0.1"],
                capture_output=True,
                check=True,
                timeout=120,
            )
            (folder / "known_hosts").write_bytes(scanned.stdout)
            yield Port(platform, number, folder)
            client.stop(made.id)
            client.wait(made.id)
    finally:
        support.stop_platform(home)


def is_ready(client: Any) -> Callable[[], bool]:
    def ask() -> bool:
        try:
            client.ssh_access("open")
        except Unavailable:
            return False
        except Exception as fault:
            if getattr(fault, "code", "") == "job_not_running":
                return False
            raise
        return True

    return ask


def test_sessions_are_carried_on_into_the_job(port: Port) -> None:
    done = port.run("ssh", "open@127.0.0.1", "hostname; echo oops >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "open-0\n", "oops\n")
    assert port.run("ssh", "open@127.0.0.1", "tr a-z A-Z", input="hello").stdout == "HELLO"
    terminal = port.run("ssh", "-tt", "open.0@127.0.0.1", "stty size; exit 3")
    assert (terminal.returncode, terminal.stdout.strip()) == (3, "24 80")
    assert port.run("ssh", "open@127.0.0.1", "kill -KILL $$").returncode == 255


def test_files_go_both_ways(port: Port) -> None:
    data = os.urandom(5_000_001)
    (port.keys / "data").write_bytes(data)
    assert port.run("scp", "-q", str(port.keys / "data"), "open@127.0.0.1:/tmp/data").returncode == 0
    digest = port.run("ssh", "open@127.0.0.1", "sha256sum /tmp/data").stdout.split()[0]
    assert digest == hashlib.sha256(data).hexdigest()
    assert port.run("scp", "-q", "open@127.0.0.1:/tmp/data", str(port.keys / "back")).returncode == 0
    assert (port.keys / "back").read_bytes() == data


def test_ports_of_the_job_are_reached_and_none_of_the_host(port: Port, support: Any) -> None:
    inside, outside = support.free_port(), support.free_port()
    forwards = ["-L", f"{inside}:127.0.0.1:4000", "-L", f"{outside}:127.0.0.1:{port.number}"]
    with subprocess.Popen(["ssh", *port.options(), *forwards, "-N", "open@127.0.0.1"]) as tunnel:
        try:
            caller = socket.socket()
            support.wait_until(
                lambda: caller.connect_ex(("127.0.0.1", inside)) == 0, what="no forwarded port"
            )
            with caller:
                assert caller.recv(100) == b"inside\n"
            # The ssh port itself listens on the host, and not in the job.
            with socket.create_connection(("127.0.0.1", outside), 90) as refused:
                assert refused.recv(100) == b""
        finally:
            tunnel.kill()


def test_who_is_not_let_in_learns_why(port: Port) -> None:
    stranger = port.run("ssh", "open@127.0.0.1", "hostname", key="stranger")
    assert stranger.returncode == 255 and "Permission denied" in stranger.stderr
    missing = port.run("ssh", "nothing@127.0.0.1", "hostname")
    assert missing.returncode == 1 and "There is no job 'nothing'" in missing.stderr
    node = port.run("ssh", "open.5@127.0.0.1", "hostname")
    assert node.returncode == 1 and "no node 5" in node.stderr


def test_a_removed_key_opens_nothing_from_then_on(port: Port) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", port.keys / "other"], check=True)
    with port.platform.client() as client:
        key = client.add_ssh_key((port.keys / "other.pub").read_text(), "other")
        # Registered after the job began: the port knows it all the same.
        assert port.run("ssh", "open@127.0.0.1", "hostname", key="other").stdout == "open-0\n"
        client.remove_ssh_key(key.fingerprint)
    assert "Permission denied" in port.run("ssh", "open@127.0.0.1", "hostname", key="other").stderr
