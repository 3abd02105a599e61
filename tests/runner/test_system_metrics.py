from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainshed.runner.sandbox.spec import Usage
from trainshed.runner.system_metrics import SystemSampler, measure_processes


def test_cores_in_use_are_the_difference_of_two_samples() -> None:
    sampler = SystemSampler()
    assert sampler.sample(100.0, usage=Usage(cpu_seconds=10.0, memory_bytes=5))["cpu"] == 0
    sample = sampler.sample(102.0, usage=Usage(cpu_seconds=13.0, memory_bytes=7))
    assert (sample["time"], sample["cpu"], sample["memory_bytes"]) == (102.0, 1.5, 7)
    # A process that ended takes its time with it, and a clock may stand still or go back.
    assert sampler.sample(103.0, usage=Usage(cpu_seconds=1.0))["cpu"] == 0
    assert sampler.sample(103.0, usage=Usage(cpu_seconds=2.0))["cpu"] == 0
    json.dumps(sample, allow_nan=False)


def test_a_process_is_measured_with_its_children() -> None:
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 90
        while measure_processes(parent.pid)[2] < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        seconds, memory, count = measure_processes(parent.pid)
        assert seconds > 0 and memory > 1 << 20 and count == 2
        assert SystemSampler().sample(1.0, root_pid=parent.pid)["processes"] == 2
    finally:
        parent.communicate(b"\n", timeout=120)
    assert measure_processes(parent.pid) == (0.0, 0, 0)


def test_our_own_process_grows_with_its_memory() -> None:
    before = measure_processes(os.getpid())[1]
    block = bytearray(os.urandom(1 << 20) * 64)
    assert measure_processes(os.getpid())[1] - before > 32 << 20
    del block


def test_device_use_is_read_beside_the_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '1, 87, 4096, 61, 250.5'\necho '2, [N/A], 1, 2, 3'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    sampler = SystemSampler(device_kind="nvidia", devices=(1, 2))
    sampler.start()
    try:
        deadline = time.monotonic() + 90
        while "devices" not in (sample := sampler.sample(time.time())):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        sampler.stop()
    first, second = sample["devices"]
    assert (first["index"], first["utilization"], first["power_watts"]) == (1, 87.0, 250.5)
    assert "utilization" not in second
    assert sampler.is_device_used and not SystemSampler().is_device_used


def test_without_devices_no_tool_is_asked() -> None:
    sampler = SystemSampler(device_kind="ascend", devices=())
    sampler.start()
    assert "devices" not in sampler.sample(1.0)
    sampler.stop()
