"""The launcher of Ascend images: one process per device, by the rank table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from trainshed.model.rank_table import RankDevice, Server, render_b
from trainshed.runner.shims import shims_folder

PROGRAM = shims_folder() / "bin" / "davincirun"
SHOW = (
    "import json, os; print(json.dumps([os.environ[name] for name in ('JOB_ID', 'DEVICE_ID', 'RANK_ID', 'RANK_SIZE')]"
    " + [os.getcwd(), len(json.load(open(os.environ['RANK_TABLE_FILE']))['server_list'])]))"
)


def table(nodes: int = 2, devices: int = 3) -> str:
    return render_b(
        tuple(
            Server(
                f"10.0.0.{node}",
                f"job1-job-x-{node}",
                tuple(RankDevice(device, f"192.0.{node}.{device}") for device in range(devices)),
            )
            for node in range(nodes)
        ),
        "job-trainjob",
    )


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """The variables of the second of two nodes."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "jobstart_hccl.json").write_text(table())
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "RANK_TABLE_FILE": str(tmp_path / "config"),
        "BATCH_TASK_CURRENT_INSTANCE": "job1-job-x-1",
        "BATCH_JOB_ID": "job1",
        "BATCH_TASK_LOG_PATH": str(tmp_path / "log"),
    }


def start(variables: dict[str, str], *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(PROGRAM), *command],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(variables: dict[str, str], *command: str) -> tuple[int, str]:
    process = start(variables, *command)
    output, _ = process.communicate(timeout=120)
    return process.returncode, output


def test_one_process_per_device_of_this_node(variables: dict[str, str], tmp_path: Path) -> None:
    code, output = run(variables, sys.executable, "-c", SHOW)
    assert code == 0, output
    said = sorted(json.loads(line) for line in output.splitlines())
    assert said == [
        ["job1", str(device), str(3 + device), "6", f"{tmp_path}/workspace/device{device}", 2]
        for device in range(3)
    ]
    log = (tmp_path / "log" / "job1-proc-rank-4-device-1.txt").read_text()
    assert json.loads(log) == said[1]
    written: dict[str, Any] = json.loads((tmp_path / "rank_table" / "jobstart_hccl.json").read_text())
    assert [device["rank_id"] for server in written["server_list"] for device in server["device"]] == list(
        "012345"
    )
    assert "pod_name" not in written["server_list"][0]


def test_it_waits_until_the_scheduler_has_completed_the_table(
    variables: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "config" / "jobstart_hccl.json"
    file.write_text('{"status": "initializing"}')

    def complete() -> None:
        time.sleep(0.7)
        file.write_text(table(nodes=1, devices=1))

    thread = threading.Thread(target=complete)
    thread.start()
    code, output = run(variables, "true")
    thread.join()
    assert code == 0, output


def test_the_first_that_fails_ends_the_others_and_gives_its_code(
    variables: dict[str, str], tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    ready.mkdir()
    # The one that fails waits until the others can hear SIGTERM.
    script = (
        'cd "$READY"; if [ $RANK_ID = 4 ]; then until [ "$(ls | wc -l)" = 2 ]; do sleep 0.05; done; exit 41; fi; '
        'trap "echo asked; exit 0" TERM; touch "$RANK_ID"; sleep 60 & wait'
    )
    code, output = run({**variables, "READY": str(ready)}, "bash", "-c", script)
    assert code == 41
    assert output.count("asked") == 2


def test_a_stop_reaches_the_processes(variables: dict[str, str]) -> None:
    script = 'trap "echo asked; exit 3" TERM; echo begun; sleep 60 & wait'
    process = start(variables, "bash", "-c", script)
    assert process.stdout is not None
    for _ in range(3):
        assert process.stdout.readline() == "begun\n"
    process.terminate()
    output, _ = process.communicate(timeout=120)
    assert output.count("asked") == 3
    assert process.returncode == 3


def test_what_cannot_be_started_says_why(variables: dict[str, str], tmp_path: Path) -> None:
    assert run(variables)[0] == 2
    assert run(variables, "no-such-program")[0] == 127
    (tmp_path / "config" / "jobstart_hccl.json").unlink()
    code, output = run(variables, "true")
    assert code == 1 and "the rank table cannot be read" in output
