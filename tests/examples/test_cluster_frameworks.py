"""Real trainings of several nodes on a real Slurm cluster: the examples as they are, each node with nothing but Python."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import slurm_yard

TESTS = Path(__file__).resolve().parents[1]
EXAMPLES = TESTS.parent / "examples"

# The first training with a framework waits for its environment.
pytestmark = [pytest.mark.slow, pytest.mark.training, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def cluster_platform(
    support: Any, mnist: Path, share_environments: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A platform whose jobs run on a cluster of two nodes, with MNIST in its store."""
    folder = tmp_path_factory.mktemp("cluster")
    home = folder / "home"
    home.mkdir(mode=0o700)
    # Nodes build their environments where all of these tests do.
    root = folder / "nodes" / f"trainshed-{os.geteuid()}"
    root.mkdir(parents=True, mode=0o700)
    shared = support.REPOSITORY / ".cache" / "environments"
    shared.mkdir(parents=True, exist_ok=True)
    (root / "environments").symlink_to(shared)
    (home / "settings.toml").write_text(
        'engine = "slurm"\nnode_environment_gb = 1000\n[pools.lab]\nengine = "slurm"\npartition = "all"\n'
        f'run_as = "service"\npython = "{os.path.realpath(sys.executable)}"\nnode_folder = "{folder}/nodes"\n'
    )
    with slurm_yard.open_cluster(nodes=2, memory_mb=16000) as cluster:
        try:
            conf = {"SLURM_CONF": cluster.environment["SLURM_CONF"]}
            platform = share_environments(support.start_platform(home, environment=conf))
            for bucket in ("datasets", "results"):
                assert platform.cli("obs", "mb", bucket).exit_code == 0
            copied = platform.cli("obs", "cp", "-r", mnist, "obs://datasets/mnist/")
            assert copied.exit_code == 0, copied.output
            yield platform
        finally:
            support.stop_platform(home)


def train(platform: Any, file: Path, name: str, *changes: str) -> str:
    """Run an example to its end on two nodes: its log. Both must have ended with the same weights."""
    done = platform.cli("submit", file, *changes, "--follow", timeout=900)
    log = str(platform.cli("logs", name, "--all").output)
    assert done.exit_code == 0, done.output[-8000:] + log[-8000:]
    weights = dict(re.findall(r"weights of rank (\d+): ([0-9a-f]{16})", log))
    assert sorted(weights) == ["0", "1"] and len(set(weights.values())) == 1, log[-8000:]
    shown = platform.cli("show", name, "--json").json()
    assert shown["spec"]["pool"] == "lab" and shown["nodes"] == 2
    return log


def test_pytorch_trains_on_two_nodes_of_a_cluster(cluster_platform: Any) -> None:
    log = train(cluster_platform, EXAMPLES / "ddp-pytorch" / "two-nodes.yaml", "ddp-two-nodes")
    [accuracy] = re.findall(r"accuracy: ([0-9.]+)", log)
    assert float(accuracy) > 0.9
    # Both nodes are on one machine here: what the first one fetched, the second one finds.
    assert "already on this machine" in log or log.count("staged in") == 2


def test_mindspore_trains_on_two_nodes_of_a_cluster(cluster_platform: Any) -> None:
    changes = ("--set", "nodes=2", "--set", "processes=1")
    log = train(
        cluster_platform, EXAMPLES / "lenet-mindspore" / "two-processes.yaml", "lenet-parallel", *changes
    )
    [accuracy] = re.findall(r"accuracy: ([0-9.]+)", log)
    assert float(accuracy) > 0.85
    assert "mindspore_scheduler.log" in cluster_platform.cli("files", "lenet-parallel").output
