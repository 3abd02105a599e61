"""The stand-in for Ais-Bench's module, as scripts call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from trainshed.runner.shims import shims_folder

MODULE = shims_folder() / "ais_utils.py"


def run(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(shims_folder()), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_results_are_kept_in_the_working_folder_and_are_metrics_of_the_job(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    script = (
        "import ais_utils\n"
        "ais_utils.set_result('training', 'throughput_ratio', 1767.3)\n"
        "ais_utils.set_result('training', 'accuracy', 0.77)\n"
        "ais_utils.set_result('training', 'result', 'OK')\n"
        "assert ais_utils.calc_lantency(3.0, 2) == 1.5 and ais_utils.calc_lantency(1, 0) == 0\n"
    )
    done = run("-c", script, cwd=tmp_path, TRAINSHED_METRICS_FILE=str(metrics))
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "ais_result.json").read_text()) == {
        "training": {"throughput_ratio": 1767.3, "accuracy": 0.77, "result": "OK"}
    }
    named = [json.loads(line)["name"] for line in metrics.read_text().splitlines()]
    assert named == ["throughput_ratio", "accuracy"]


def test_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "results/r.json"
    for arguments in (("training", "result", "OK"), ("training", "accuracy", "0.5")):
        done = run(str(MODULE), "set_result", *arguments, cwd=tmp_path, AIS_RESULT_FILE=str(file))
        assert done.returncode == 0, done.stderr
    assert json.loads(file.read_text()) == {"training": {"result": "OK", "accuracy": 0.5}}
    read = run("-m", "ais_utils", "get_result", "training", "result", cwd=tmp_path, AIS_RESULT_FILE=str(file))
    assert read.stdout == "OK\n"
    assert run(str(MODULE), "get_result", "training", "none", cwd=tmp_path).returncode == 1
    assert run(str(MODULE), "set_result", "training", cwd=tmp_path).returncode == 2


def test_many_processes_lose_no_result(tmp_path: Path) -> None:
    code = "import ais_utils, os\nfor n in range(20): ais_utils.set_result('training', os.environ['ME'] + str(n), n)"
    workers = [
        subprocess.Popen(
            [sys.executable, "-S", "-c", code],
            cwd=tmp_path,
            env={"PYTHONPATH": str(shims_folder()), "ME": name},
            stdout=subprocess.DEVNULL,
        )
        for name in "abc"
    ]
    assert [worker.wait(60) for worker in workers] == [0, 0, 0]
    assert len(json.loads((tmp_path / "ais_result.json").read_text())["training"]) == 60
