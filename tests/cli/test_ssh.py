"""Entering a running job with `trainshed ssh`, and with a plain ssh client through `trainshed ssh-proxy`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainshed import Client
from trainshed.cli.ssh import render_config
from trainshed.client.results import SshAccess
from trainshed.model.errors import Conflict, NotAllowed, NotFound

pytestmark = pytest.mark.slow

SCRIPT = """
import os, pathlib, socket, threading, time
address = socket.gethostbyname(socket.gethostname())
server = socket.create_server((address, 4000))
def serve():
    while True:
        server.accept()[0].sendall(b"inside\\n")
threading.Thread(target=serve, daemon=True).start()
pathlib.Path("/tmp/note").write_text(os.environ["TRAINSHED_NODE"])
print("begun", flush=True)
while not pathlib.Path("/tmp/over").exists():
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def job(platform_up: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A job of two nodes that runs until it is stopped."""
    code = tmp_path_factory.mktemp("code")
    (code / "train.py").write_text(SCRIPT)
    with platform_up.client() as client:
        made = client.submit({"name": "open", "code": str(code), "boot": "train.py", "nodes": 2})
        wait_until_ready(client, made.id)
        yield made
        # One test ends it itself, and puts another in its place.
        with contextlib.suppress(NotFound):
            client.stop(made.id)
            client.wait(made.id)


def wait_until_ready(client: Client, job: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            for node in (0, 1):
                client.ssh_access(job, node)
            return
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def plain_ssh(
    platform: Any, folder: Path, *arguments: str, node: int = 0
) -> subprocess.CompletedProcess[str]:
    """A plain ssh client that goes through `trainshed ssh-proxy` with a key of its own."""
    proxy = f"{sys.executable} -m trainshed.cli.main --home {platform.home.path} ssh-proxy open --node {node}"
    options = ["-F", "/dev/null", "-i", str(folder / "id"), "-o", f"ProxyCommand={proxy}"]
    options += ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes"]
    return subprocess.run(
        [arguments[0], *options, *arguments[1:]], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pair of keys: id, id.pub."""
    folder = tmp_path_factory.mktemp("keys")
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "me@home", "-f", folder / "id"], check=True
    )
    return folder


def test_a_command_runs_inside_the_job(platform_up: Any, job: Any) -> None:
    done = platform_up.cli("ssh", "open", "--node", "1", "--", "cat /tmp/note; hostname; exit 5")
    assert (done.exit_code, done.stdout) == (5, "1open-1\n"), done.output
    # The host's own processes and files are not there.
    done = platform_up.cli("ssh", "open", "--", f"ls {platform_up.home.path}; ps -e | wc -l")
    assert "No such file" in done.stderr and int(done.stdout) < 15


def test_a_port_of_the_job_is_reached(platform_up: Any, job: Any, support: Any) -> None:
    port = support.free_port()
    variables = {**os.environ, "TRAINSHED_HOME": str(platform_up.home.path)}
    command = [sys.executable, "-m", "trainshed.cli.main", "ssh", "open", "-L", f"{port}:127.0.0.2:4000"]
    with subprocess.Popen(
        [*command, "--", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=variables
    ) as process:
        caller = socket.socket()
        support.wait_until(
            lambda: caller.connect_ex(("127.0.0.1", port)) == 0, what="the port is not forwarded"
        )
        with caller:
            assert caller.recv(100) == b"inside\n"
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(90) == 0


def test_a_registered_key_opens_jobs_that_start_later(platform_up: Any, job: Any, key: Path) -> None:
    assert "Permission denied" in plain_ssh(platform_up, key, "ssh", "me@open", "hostname").stderr
    added = platform_up.cli("ssh-keys", "add", key / "id.pub", "--json").json()
    assert (added["name"], added["key"]) == ("me@home", " ".join((key / "id.pub").read_text().split()[:2]))
    listed = platform_up.cli("ssh-keys", "list")
    assert added["fingerprint"] in listed.stdout
    assert platform_up.cli("ssh-keys", "add", key / "id").exit_code == 1
    code = key.parent / "code"
    code.mkdir()
    (code / "train.py").write_text(SCRIPT)
    with platform_up.client() as client:
        client.stop(job.id)
        client.wait(job.id)
        client.delete(job.id)
        again = client.submit({"name": "open", "code": str(code), "boot": "train.py", "nodes": 2})
        wait_until_ready(client, again.id)
        done = plain_ssh(platform_up, key, "ssh", "me@open", "hostname", node=1)
        assert (done.returncode, done.stdout) == (0, "open-1\n"), done.stderr
        data = os.urandom(5_000_000)
        (key / "data").write_bytes(data)
        done = plain_ssh(platform_up, key, "scp", "-q", str(key / "data"), "me@open:/tmp/data")
        assert done.returncode == 0, done.stderr
        done = plain_ssh(platform_up, key, "ssh", "me@open", "sha256sum /tmp/data")
        assert done.stdout.split()[0] == hashlib.sha256(data).hexdigest()
        assert platform_up.cli("ssh-keys", "remove", added["fingerprint"]).exit_code == 0
        assert client.ssh_keys() == []
        client.stop(again.id)
        client.wait(again.id)
        with pytest.raises(Conflict, match="has ended"):
            client.ssh_access("open")
    ended = platform_up.cli("ssh", "open")
    assert ended.exit_code == 1
    assert "has ended" in ended.stderr and "trainshed logs open" in ended.stderr


def test_who_may_not_stop_a_job_may_not_enter_it(platform_up: Any, job: Any, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("import time; print('begun', flush=True); time.sleep(60)")
    with platform_up.client() as admin:
        made = admin.submit({"name": "alone", "code": str(code), "boot": "train.py"})
        admin.add_user("eve", "a long password of eve")
        admin.set_member("default", "eve", "developer")
        from trainshed.client.directory import sign_in

        token = sign_in(platform_up.url, "eve", "a long password of eve")
        with Client(platform_up.url, token) as eve:
            with pytest.raises(NotAllowed):
                eve.ssh_access("alone")
            with pytest.raises(NotFound):
                eve.ssh_access("nothing")
            from trainshed.client.tunnel import open_tunnel

            tunnel = open_tunnel(platform_up.url, token, f"/api/v1/jobs/{made.id}/ssh/0")
            assert tunnel.receive() == b""
            assert tunnel.reason
            tunnel.close()
        deadline = time.monotonic() + 90
        while admin.get("alone").phase != "Running":
            assert time.monotonic() < deadline
            time.sleep(0.1)
        with pytest.raises(Conflict, match="does not answer ssh") as caught:
            admin.ssh_access("alone")
        assert "ssh: true" in caught.value.hint
        admin.stop(made.id)
        admin.wait(made.id)


def test_the_lines_for_an_ssh_client_name_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINSHED_HOME", "/srv/trainshed")
    hosts = {
        (node, nodes): render_config(SshAccess("id", "job", node, nodes, "user", "key")).splitlines()[0]
        for node, nodes in ((0, 1), (0, 2), (1, 2))
    }
    assert hosts == {(0, 1): "Host job", (0, 2): "Host job job-0", (1, 2): "Host job-1"}
    # An editor that uses them later does not have this shell's variables.
    assert "--home /srv/trainshed ssh-proxy id" in render_config(SshAccess("id", "job", 0, 1, "user", "key"))
