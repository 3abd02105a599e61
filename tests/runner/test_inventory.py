from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainshed.model.errors import InvalidInput
from trainshed.model.flavor import Device
from trainshed.runner.inventory import (
    count_cpus,
    describe_node,
    device_paths,
    find_ascend_devices,
    find_nvidia_devices,
    measure_memory_mb,
)


def write(file: Path, text: str = "") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def add_program(folder: Path, name: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder / name, f"#!/bin/sh\ncat <<'END'\n{output}\nEND\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_this_machine_has_cores_and_memory() -> None:
    node = describe_node()
    assert 0 < node.cpus <= len(os.sched_getaffinity(0))
    assert node.memory_mb > 64
    assert node.name and node.pool == "local"


def test_affinity_counts() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert count_cpus() <= 1
    finally:
        os.sched_setaffinity(0, before)


def test_control_groups_of_both_versions_limit(tmp_path: Path) -> None:
    write(tmp_path / "proc/meminfo", "MemTotal:       8388608 kB\n")
    assert measure_memory_mb(tmp_path) == 8192
    write(tmp_path / "proc/self/cgroup", "0::/slice/unit\n")
    write(tmp_path / "sys/fs/cgroup/slice/memory.max", str(1 << 30))
    write(tmp_path / "sys/fs/cgroup/slice/unit/memory.max", "max")
    write(tmp_path / "sys/fs/cgroup/slice/unit/cpu.max", "50000 100000")
    assert measure_memory_mb(tmp_path) == 1024, "the limit of a parent holds too"
    assert count_cpus(tmp_path) == 0.5
    write(tmp_path / "proc/self/cgroup", "4:memory:/box\n1:cpu,cpuacct:/box\n")
    write(tmp_path / "sys/fs/cgroup/memory/box/memory.limit_in_bytes", str(512 << 20))
    write(tmp_path / "sys/fs/cgroup/memory/memory.limit_in_bytes", str((1 << 63) - 4096))
    write(tmp_path / "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "25000")
    write(tmp_path / "sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000")
    assert measure_memory_mb(tmp_path) == 512
    assert count_cpus(tmp_path) == 0.25


def test_nvidia_devices_by_tool_and_by_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert find_nvidia_devices(tmp_path) == ()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        write(tmp_path / "dev" / name)
    write(
        tmp_path / "proc/driver/nvidia/gpus/0000:01/information", "Model: \t Tesla T4\nDevice Minor: \t 1\n"
    )
    assert find_nvidia_devices(tmp_path) == (Device("nvidia", 0), Device("nvidia", 1, "Tesla T4"))
    add_program(tmp_path / "bin", "nvidia-smi", "0, NVIDIA A100, 81920\n1, NVIDIA A100, [N/A]", monkeypatch)
    assert find_nvidia_devices(tmp_path) == (
        Device("nvidia", 0, "NVIDIA A100", 81920),
        Device("nvidia", 1, "NVIDIA A100", 0),
    )
    paths = [path.name for path in device_paths("nvidia", [1], tmp_path)]
    assert paths == ["nvidia1", "nvidiactl", "nvidia-uvm"], "the other device stays out of reach"


def test_ascend_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("davinci0", "davinci7", "davinci_manager", "devmm_svm", "hisi_hdc"):
        write(tmp_path / "dev" / name)
    table = "| 0     910B3               | OK            | 90.1 |\n| 0                         | 0000:C1:00.0  | 0    |"
    add_program(tmp_path / "bin", "npu-smi", table, monkeypatch)
    assert find_ascend_devices(tmp_path) == (Device("ascend", 0, "910B3"), Device("ascend", 7))
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/hccn.conf").write_text(
        "address_0=192.1.27.6\nnetmask_0=255.255.255.0\naddress_7=192.4.27.7\n"
    )
    assert [device.address for device in find_ascend_devices(tmp_path)] == ["192.1.27.6", "192.4.27.7"]
    names = [path.name for path in device_paths("ascend", (7, 7, 9), tmp_path)]
    assert names == ["davinci7", "davinci_manager", "devmm_svm", "hisi_hdc"]
    assert device_paths("cpu", [0], tmp_path) == []


def test_a_tool_that_fails_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "dev/nvidia0")
    write(tmp_path / "bin/nvidia-smi", "#!/bin/sh\necho '0, broken, 1'\nexit 9\n")
    (tmp_path / "bin/nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert find_nvidia_devices(tmp_path) == (Device("nvidia", 0),)


def test_a_rehearsal_takes_the_place_of_real_devices_of_its_kind(tmp_path: Path) -> None:
    write(tmp_path / "dev/davinci0")
    node = describe_node(rehearse="ascend:8", root=tmp_path)
    assert node.count("ascend") == 8
    assert all(device.pretend for device in node.devices)
    with pytest.raises(InvalidInput):
        describe_node(rehearse="ascend:many")
