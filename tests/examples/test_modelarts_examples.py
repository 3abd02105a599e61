"""The guides' jobs for ModelArts, Xihe and Ais-Bench: real MindSpore, on a rehearsed Ascend device, on a part of MNIST."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# The first job builds MindSpore's environment.
pytestmark = [pytest.mark.slow, pytest.mark.training, pytest.mark.timeout(900)]


def cut(source: Path, target: Path, count: int) -> None:
    """The first so many images or labels of a file of MNIST."""
    data = source.read_bytes()
    dimensions = data[3]
    header = 4 + 4 * dimensions
    size = 1
    for number in range(1, dimensions):
        size *= struct.unpack(">I", data[4 + 4 * number : 8 + 4 * number])[0]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data[:4] + struct.pack(">I", count) + data[8 : header + count * size])


@pytest.fixture(scope="module")
def data(mnist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4,096 images to learn from in train/ and 512 to test with in eval/."""
    part = tmp_path_factory.mktemp("part")
    for split, stem, count in (("train", "train", 4096), ("eval", "t10k", 512)):
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"):
            cut(mnist / f"{stem}-{kind}", part / split / f"{stem}-{kind}", count)
    return part


@pytest.fixture(scope="module")
def platform(
    support: Any, data: Path, share_environments: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A platform that rehearses Ascend devices, with the data where the three guides have it."""
    path = tmp_path_factory.mktemp("platform") / "home"
    try:
        running = share_environments(support.start_platform(path, "--rehearse", "ascend:8"))
        for bucket in ("datasets", "results", "models"):
            assert running.cli("obs", "mb", bucket).exit_code == 0
        for name, test in (("mnist-modelarts", "eval"), ("mnist-xihe", "test"), ("mnist-bench", "val")):
            for split, there in (("train", "train"), ("eval", test)):
                done = running.cli("obs", "cp", "-r", data / split, f"obs://datasets/{name}/{there}/")
                assert done.exit_code == 0, done.output
        yield running
    finally:
        support.stop_platform(path)


def run(platform: Any, job: str, *changes: str, timeout: float = 400) -> str:
    settings = [word for change in changes for word in ("--set", change)]
    done = platform.cli("submit", EXAMPLES / job, *settings, "--follow", timeout=timeout)
    assert done.exit_code == 0, done.output
    output: str = done.stdout
    return output


def accuracy_in(log: str) -> float:
    found = re.search(r"accuracy: ([0-9.]+)", log)
    assert found, log
    return float(found[1])


@pytest.fixture(scope="module")
def lenet_log(platform: Any) -> str:
    """The log of the ModelArts guide's job, whose checkpoint the Xihe guide's job needs."""
    return run(platform, "modelarts-lenet/job.yaml", "parameters.epoch_size=3", timeout=800)


def test_lenet_of_the_modelarts_guide(platform: Any, lenet_log: str) -> None:
    log = lenet_log
    assert "asked for the engine Mindspore-0.5-python3.7-aarch64" in log
    assert 'device_target="Ascend" runs as CPU' in log
    assert "Download data." in log
    assert accuracy_in(log) > 0.5
    listed = platform.cli("obs", "ls", "-r", "obs://results/").stdout
    assert "obs://results/modelarts-lenet/lenet-3_128.ckpt" in listed
    assert re.search(r"obs://results/modelarts-lenet-log/job[0-9a-f]{8}-job-modelarts-lenet-0\.log", listed)


def test_lenet_of_the_xihe_guide_goes_on_from_there(platform: Any, lenet_log: str) -> None:
    copied = platform.cli(
        "obs",
        "cp",
        "obs://results/modelarts-lenet/lenet-3_128.ckpt",
        "obs://models/lenet/lenet-1_1875.ckpt",
    )
    assert copied.exit_code == 0, copied.output
    log = run(platform, "xihe-lenet/job.yaml")
    assert "parameters without a pretrained value: []" in log
    assert "packages of pip-requirements.txt are installed" in log
    # It went on from where the first job ended.
    assert accuracy_in(log) > accuracy_in(lenet_log) - 0.05
    assert (
        "obs://results/xihe-lenet/lenet-1_128.ckpt"
        in platform.cli("obs", "ls", "-r", "obs://results/").stdout
    )
    with platform.client() as client:
        assert {series.name for series in client.metrics("xihe-lenet")} >= {"loss"}


def test_a_benchmark_writes_bare_numbers_that_the_report_adds_up(platform: Any, tmp_path: Path) -> None:
    log = run(platform, "ais-bench-resnet/job.yaml", "parameters.steps=24")
    assert "LOCAL_DIR=/home/work/user-job-dir/ais-bench-resnet" in log
    run(platform, "ais-bench-resnet/report.yaml")
    fetched = platform.cli("obs", "cp", "-r", "obs://results/", tmp_path)
    assert fetched.exit_code == 0, fetched.output
    results = tmp_path / "ais-bench"
    assert (results / "ranksize.json").read_text() == "1"
    throughput = float((results / "throughput_0.json").read_text())
    accuracy = float((results / "accuracy.json").read_text())
    assert throughput > 0 and 0 <= accuracy <= 1
    report = json.loads((tmp_path / "ais-bench-report" / "ais_result.json").read_text())
    assert report == {"training": {"throughput_ratio": throughput, "accuracy": accuracy, "result": "OK"}}
    with platform.client() as client:
        assert {series.name for series in client.metrics("ais-bench-report")} >= {
            "throughput_ratio",
            "accuracy",
        }
