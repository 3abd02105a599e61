"""What a node needs to answer ssh: the server's program and packages, keys, the client's settings."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainshed.durable import remove_tree
from trainshed.model.errors import HostUnfit
from trainshed.model.home import RunFolder
from trainshed.model.launch_plan import GeneratedFile, NodeLaunch
from trainshed.model.ssh import (
    AUTHORIZED_KEYS,
    CLIENT_KEY,
    HOST_KEY,
    KEY_NAMES,
    PUBLIC_KEY,
    render_client_config,
)
from trainshed.runner.sandbox import Mount, SandboxProcess, SandboxService, namespace

__all__ = ["SshDoor", "plan_door"]

FOLDER = "/opt/trainshed/ssh"
KEYS = "/run/trainshed/ssh"
# The server's modules, and where it finds them.
PROGRAM = {"server.py": "server.py", "session.py": "trainshed/runner/ssh/session.py"}
# What the server imports beside the standard library.
PACKAGES = ("asyncssh", "cryptography", "typing_extensions", "_cffi_backend")
# What tells a process which rank it is: a session is none.
RANK_VARIABLES = frozenset(
    {
        "RANK",
        "LOCAL_RANK",
        "RANK_ID",
        "DEVICE_ID",
        "ASCEND_DEVICE_ID",
        "PADDLE_TRAINER_ID",
        "PADDLE_CURRENT_ENDPOINT",
        "PADDLE_RANK_IN_NODE",
        "FLAGS_selected_gpus",
        "FLAGS_selected_npus",
        "MS_NODE_ID",
    }
)


@dataclass(frozen=True)
class SshDoor:
    """The parts of a node's sandbox that ssh adds. Without a port it is shut, and `reason` says why."""

    address: str = ""
    port: int = 0
    reason: str = ""
    mounts: tuple[Mount, ...] = ()
    files: tuple[GeneratedFile, ...] = ()
    home: str = "/"
    log: Path = Path(os.devnull)
    # The folder of the client's settings, with the job's own key in it.
    settings: Path | None = None
    # The socket, where it listens before the sandbox is there.
    listener: socket.socket | None = None

    def listen(self, network: int) -> SshDoor:
        """The same door, answering from now on: no node may begin before its peers' doors can be knocked at.

        `network` is the descriptor of the network that the nodes share; -1 where that is the machine's own.
        """
        if not self.port:
            return self
        from trainshed.runner.gang.job_network import run_in_thread

        made: list[socket.socket] = []

        def make() -> None:
            if network >= 0:
                namespace.join_network(network)
            made.append(socket.create_server((self.address, self.port), backlog=128))

        try:
            run_in_thread(make)
        except (OSError, HostUnfit):
            # The sandbox tries again by itself, and tells the log why it fails.
            return self
        return dataclasses.replace(self, listener=made[0])

    def forget(self) -> None:
        """Remove the key, once the sandbox is gone."""
        if self.listener is not None:
            self.listener.close()
        if self.settings is not None:
            remove_tree(self.settings)

    def services(self, processes: Sequence[SandboxProcess]) -> tuple[SandboxService, ...]:
        """The server, to be started when the first connection comes; its sessions see the job's variables."""
        if not self.port:
            return ()
        python = os.path.realpath(sys.executable)
        return (
            SandboxService(
                address=self.address,
                port=self.port,
                arguments=(python, "-I", "-S", f"{FOLDER}/server.py", KEYS, self.home),
                variables=session_variables(processes),
                log=self.log,
                listener=self.listener,
            ),
        )


def plan_door(launch: NodeLaunch, folder: RunFolder) -> SshDoor:
    """The door of a node whose plan asks for one."""
    if not launch.ssh_port or not launch.peers:
        return SshDoor()
    keys = read_keys(folder)
    if len(keys) < len(KEY_NAMES):
        return SshDoor(reason="the attempt has no keys for it")
    mounts = [Mount(Path(__file__).with_name(name), f"{FOLDER}/{place}") for name, place in PROGRAM.items()]
    for name in PACKAGES:
        place = find_package(name)
        if place is None:
            return SshDoor(reason=f"the package {name} is not installed on this machine")
        mounts.append(Mount(place, f"{FOLDER}/{place.name}"))
    settings = folder.root / "ssh"
    settings.mkdir(mode=0o700, parents=True, exist_ok=True)
    mounts.append(Mount(settings, f"{launch.home}/.ssh", writable=True))
    config = render_client_config(launch.peers, launch.ssh_port, launch.user)
    return SshDoor(
        address=launch.peers[launch.node_index].address,
        port=launch.ssh_port,
        mounts=tuple(mounts),
        files=(
            GeneratedFile(f"{launch.home}/.ssh/config", config, 0o600),
            GeneratedFile(f"{launch.home}/.ssh/id_ed25519", keys[CLIENT_KEY], 0o600),
            GeneratedFile(f"{launch.home}/.ssh/id_ed25519.pub", keys[PUBLIC_KEY], 0o644),
            GeneratedFile(f"{KEYS}/host_key", keys[HOST_KEY], 0o600),
            GeneratedFile(f"{KEYS}/authorized_keys", keys[AUTHORIZED_KEYS], 0o600),
        ),
        home=launch.home,
        log=folder.path / "ssh.log",
        settings=settings,
    )


def read_keys(folder: RunFolder) -> dict[str, str]:
    """The keys of this attempt; they travel with its secrets."""
    try:
        values = json.loads(folder.secrets.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    return {name: values[name] for name in KEY_NAMES if name in values}


def find_package(name: str) -> Path | None:
    """Where a package of this interpreter lies, without loading it."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        return None
    place = Path(found.origin)
    return place.parent if place.name == "__init__.py" else place


def session_variables(processes: Sequence[SandboxProcess]) -> dict[str, str]:
    """The variables that all processes of the node have in common, without those of a single rank."""
    first, *others = [process.variables for process in processes]
    return {
        name: value
        for name, value in first.items()
        if name not in RANK_VARIABLES and all(other.get(name) == value for other in others)
    }
