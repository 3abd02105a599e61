"""A cluster whose nodes have networks and addresses of their own, as real machines have: nothing but a wire in between."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import slurm_yard
import test_slurm_frameworks as jobs

pytestmark = pytest.mark.slow

# Not everybody has its folder on the path.
IP = shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or ""


class Networks:
    """A bridge, and behind it a network for each node."""

    def __init__(self, nodes: int) -> None:
        # Of this process's own: several may be there at once.
        number = os.getpid() % 60000
        self.prefix = f"10.{64 + number // 1000}.{number % 250}"
        self._bridge = f"tsb{number}"
        self._names = [f"ts{number}-{index}" for index in range(1, nodes + 1)]

    def __enter__(self) -> Networks:
        self._ip("link", "add", self._bridge, "type", "bridge")
        self._ip("addr", "add", f"{self.prefix}.1/24", "dev", self._bridge)
        self._ip("link", "set", self._bridge, "up")
        for index, name in enumerate(self._names, 11):
            wire = f"v{name}"
            self._ip("netns", "add", name)
            self._ip("link", "add", wire, "type", "veth", "peer", "name", "eth0", "netns", name)
            self._ip("link", "set", wire, "master", self._bridge, "up")
            self._ip("-n", name, "addr", "add", f"{self.prefix}.{index}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                self._ip("-n", name, "link", "set", device, "up")
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._names:
            self._ip("netns", "del", name, check=False)
        self._ip("link", "del", self._bridge, check=False)

    def wrap(self, number: int) -> list[str]:
        """What starts a program in the network of a node."""
        return [IP, "netns", "exec", self._names[number - 1]]

    @staticmethod
    def _ip(*words: str, check: bool = True) -> None:
        subprocess.run([IP, *words], check=check, capture_output=True, timeout=20)


def may_make_networks() -> bool:
    """Whether this machine lets these tests make networks: a container's root may not."""
    if os.geteuid() or not IP:
        return False
    name = f"tst{os.getpid()}"
    done = subprocess.run([IP, "netns", "add", name], check=False, capture_output=True)
    subprocess.run([IP, "netns", "del", name], check=False, capture_output=True)
    return done.returncode == 0


@pytest.mark.skipif(not may_make_networks(), reason="only root may give nodes networks of their own")
def test_nodes_with_addresses_of_their_own_meet_over_mpi_and_ssh(support: Any, tmp_path: Path) -> None:
    with (
        Networks(2) as networks,
        slurm_yard.open_cluster(
            nodes=2,
            memory_mb=8000,
            controller=f"{networks.prefix}.1",
            addresses=f"{networks.prefix}.[11-12]",
            wrap=networks.wrap,
        ) as cluster,
    ):
        settings = f'engine = "slurm"\nhost = "{networks.prefix}.1"\n' + slurm_yard.describe_pool(
            "lab", node_folder=f"{tmp_path}/nodes", addresses=f"{networks.prefix}.0/24"
        )
        home = tmp_path / "home"
        with slurm_yard.start_on_cluster(support, cluster, home, settings, buckets=()) as platform:
            command = (
                "mpirun --hostfile /job/hostfile --map-by node -np 2 python train.py && "
                "echo PEERS $(ssh node-1 hostname) $MASTER_ADDR && ssh node-1 touch /tmp/over || exit 1;"
            )
            jobs.submit(
                platform, tmp_path, jobs.MPI, name="far", nodes=2, flavor="ascend.2", ssh=True,
                command=f"{command} cat /job/rank_table/hccl.json", worker_command=jobs.WAIT,
            )  # fmt: skip
            log = jobs.wait_for_end(platform, "far")
    assert "rank 0 on far-0 sum 3" in log and "rank 1 on far-1 sum 3" in log
    assert f"PEERS far-1 {networks.prefix}.11" in log
    lines = [line.partition("] ")[2] for line in log.splitlines() if line.startswith("[rank 0]")]
    table = json.loads("\n".join(lines[next(i for i, line in enumerate(lines) if line.startswith("{")) :]))
    assert [each["server_id"] for each in table["server_list"]] == [
        f"{networks.prefix}.11",
        f"{networks.prefix}.12",
    ], log
