"""Real trainings with the real frameworks, through the whole platform, which builds each environment once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# The first training with a framework waits for its environment.
pytestmark = [pytest.mark.slow, pytest.mark.training, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def platform(
    support: Any, mnist: Path, share_environments: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A platform that rehearses two nodes of eight devices, with MNIST in its store."""
    path = tmp_path_factory.mktemp("platform") / "home"
    try:
        platform = share_environments(support.start_platform(path, "--rehearse", "ascend:16"))
        for bucket in ("datasets", "results"):
            assert platform.cli("obs", "mb", bucket).exit_code == 0
        copied = platform.cli("obs", "cp", "-r", mnist, "obs://datasets/mnist/")
        assert copied.exit_code == 0, copied.output
        yield platform
    finally:
        support.stop_platform(path)


def train(platform: Any, file: Path, folder: Path, ranks: int) -> tuple[float, str]:
    """Run an example to its end: its accuracy, and its whole log. All ranks must have ended with the same weights."""
    done = platform.cli("submit", file, "--follow", timeout=900)
    job = yaml.safe_load(file.read_text())
    log = platform.cli("logs", job["name"], "--all").output
    assert done.exit_code == 0, done.output[-8000:] + log[-8000:]
    weights = dict(re.findall(r"weights of rank (\d+): ([0-9a-f]{16})", log))
    assert sorted(map(int, weights)) == list(range(ranks)), log[-8000:]
    assert len(set(weights.values())) == 1, weights
    fetched = platform.cli("obs", "cp", "-r", job["outputs"]["train_url"], folder / "result")
    assert fetched.exit_code == 0, fetched.output
    result = json.loads((folder / "result" / "accuracy.json").read_text())
    assert result["ranks"] == ranks
    return result["accuracy"], log


def test_mindspore_learns_mnist(platform: Any, tmp_path: Path) -> None:
    accuracy, log = train(platform, EXAMPLES / "lenet-mindspore" / "job.yaml", tmp_path, 1)
    assert accuracy >= 0.96
    assert "trainshed rehearsal" not in log, "a job for a CPU is no rehearsal"


def test_mindspore_trains_on_two_processes(platform: Any, tmp_path: Path) -> None:
    accuracy, _ = train(platform, EXAMPLES / "lenet-mindspore" / "two-processes.yaml", tmp_path, 2)
    assert accuracy > 0.85
    kept = platform.cli("files", "lenet-parallel").output
    assert "mindspore_scheduler.log" in kept


def test_mindspore_rehearses_two_nodes_of_eight_devices(platform: Any, tmp_path: Path) -> None:
    _, log = train(platform, EXAMPLES / "lenet-mindspore" / "rehearsal.yaml", tmp_path, 16)
    for line in (
        "[trainshed] asked for the engine mindspore_1.7.0-cann_5.1.0-py_3.7-euler_2.8.3-aarch64; mindspore 2.10.0 runs",
        '[trainshed rehearsal] device_target="Ascend" runs as CPU',
    ):
        assert log.count(line) == 2, "once per node"
    shown = platform.cli("show", "lenet-rehearsal").output
    assert "runs as mindspore (mindspore==2.10.0)" in shown
    assert "REHEARSAL" in platform.cli("jobs").output


def test_pytorch_trains_on_two_processes(platform: Any, tmp_path: Path) -> None:
    accuracy, _ = train(platform, EXAMPLES / "ddp-pytorch" / "job.yaml", tmp_path, 2)
    assert accuracy > 0.9


def test_pytorch_trains_on_two_nodes(platform: Any, tmp_path: Path) -> None:
    accuracy, _ = train(platform, EXAMPLES / "ddp-pytorch" / "two-nodes.yaml", tmp_path, 2)
    assert accuracy > 0.9


def test_paddle_trains_on_two_nodes_by_a_guides_own_command(platform: Any, tmp_path: Path) -> None:
    accuracy, log = train(platform, EXAMPLES / "fleet-paddle" / "job.yaml", tmp_path, 2)
    assert accuracy > 0.9
    assert "/home/work/user-job-dir/run.sh is a shell script: bash runs it instead of python" in log
    assert "passed on as: --master=127.0.0.2:29402 --nnodes=2 --rank=0 --nproc_per_node=1" in log


def rehearse(platform: Any, folder: Path, script: str, **job: Any) -> list[str]:
    """Run a script for devices on a node without; what its first rank's log says of the mapping."""
    name = script.removesuffix(".py").replace("_", "-")
    spec = {"name": name, "code": str(Path(__file__).parent / "scripts"), "boot": script, **job}
    if "flavor" not in job:
        spec |= {"boot": "as_on_gpus.py", "parameters": {"script": script}}
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(spec))
    done = platform.cli("submit", file, "--follow", timeout=900)
    log = platform.cli("logs", name, "--all").output
    assert done.exit_code == 0, done.output[-8000:] + log[-8000:]
    assert log.count("all is well") == job.get("processes", 1)
    return re.findall(r"\[trainshed rehearsal\] (.*)", platform.cli("logs", name, "--rank", "0").output)


def test_a_pytorch_script_for_gpus_runs_on_a_cpu(platform: Any, tmp_path: Path) -> None:
    said = rehearse(platform, tmp_path, "torch_for_gpus.py", engine="pytorch", processes=2)
    assert said == [
        "cuda devices run as CPU",
        'init_process_group("nccl") communicates by gloo, on the CPU',
        "SyncBatchNorm cannot be mapped: BatchNorm with the statistics of each rank alone stands in for it",
        "Module.cuda() and .npu() leave modules where they are: on the CPU",
        "DistributedDataParallel(device_ids=...) has no meaning on a CPU and is left out",
        "GradScaler does not scale: gradients are computed in full precision",
        "Tensor.cuda(), .npu() and .pin_memory() leave tensors where they are: on the CPU",
        'autocast("cuda") computes in full precision',
        "all_reduce(AVG) is a sum and a division: Gloo has no average",
        "torch.cuda.get_device_properties cannot be mapped: it needs a real device",
    ]


def test_a_pytorch_script_for_npus_runs_on_a_cpu(platform: Any, tmp_path: Path) -> None:
    said = rehearse(platform, tmp_path, "torch_for_npus.py", engine="pytorch", flavor="ascend.8", processes=1)
    assert said[:2] == [
        "torch_npu is a stand-in: npu devices run as CPU",
        "transfer_to_npu: cuda devices run as CPU, too",
    ]
    assert "torch_npu.profiler cannot be mapped: the stand-in for torch_npu has no such part" in said


def test_a_paddle_script_for_gpus_runs_on_a_cpu(platform: Any, tmp_path: Path) -> None:
    said = rehearse(platform, tmp_path, "paddle_for_gpus.py", engine="paddle", processes=2)
    assert said == [
        'the device "gpu" runs as CPU',
        "CUDAPlace runs as CPUPlace",
        "SyncBatchNorm cannot be mapped: BatchNorm with the statistics of each rank alone stands in for it",
        "Tensor.cuda() leaves tensors where they are: on the CPU",
    ]


def test_tensorflow_fits_a_line_and_writes_for_tensorboard(platform: Any, tmp_path: Path) -> None:
    said = rehearse(platform, tmp_path, "tensorflow_fit.py", engine="TF-2.1.0-python3.6")
    assert said == [
        "TensorFlow computes on the CPU: lists of GPUs are empty, and strategies over NCCL or HCCL are not mapped"
    ]
