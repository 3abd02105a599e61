"""What this machine has: cores, memory and accelerators, and the device files that reach them."""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from trainshed.model.flavor import Device, DeviceKind, Node, parse_rehearsal

__all__ = [
    "count_cpus",
    "describe_node",
    "device_paths",
    "find_ascend_devices",
    "find_nvidia_devices",
    "measure_memory_mb",
]

_QUERY_SECONDS = 10
_DEVICE_SECONDS = 60
_UNLIMITED = 1 << 60
# Files that every CANN or CUDA program opens beside those of its own devices.
_SHARED_FILES: dict[DeviceKind, tuple[str, ...]] = {
    "cpu": (),
    "nvidia": ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"),
    "ascend": ("davinci_manager", "devmm_svm", "hisi_hdc"),
}
_DEVICE_FILES: dict[DeviceKind, str] = {"cpu": "", "nvidia": "nvidia", "ascend": "davinci"}


def describe_node(*, pool: str = "local", rehearse: str = "", name: str = "", root: Path = Path("/")) -> Node:
    """This machine as a node. A rehearsal's pretend devices take the place of real ones of their kind."""
    pretend = parse_rehearsal(rehearse) if rehearse else ()
    kinds = {device.kind for device in pretend}
    real = _find_devices(root, int(time.monotonic() / _DEVICE_SECONDS))
    return Node(
        name=name or platform.node() or "localhost",
        pool=pool,
        cpus=count_cpus(root),
        memory_mb=measure_memory_mb(root),
        devices=(*(device for device in real if device.kind not in kinds), *pretend),
    )


@functools.lru_cache(maxsize=4)
def _find_devices(root: Path, minute: int) -> tuple[Device, ...]:
    """All accelerators, asked for once a minute: the vendors' tools take up to a second to answer."""
    return (*find_nvidia_devices(root), *find_ascend_devices(root))


def count_cpus(root: Path = Path("/")) -> float:
    """Cores that this process may use: what affinity and the control group leave of them."""
    cores = float(len(os.sched_getaffinity(0)))
    for folder in _group_folders(root, "cpu"):
        quota = _read(folder / "cpu.max").split()
        if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit() and int(quota[1]):
            cores = min(cores, int(quota[0]) / int(quota[1]))
        old, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if old.isdigit() and period.isdigit() and int(period) and int(old):
            cores = min(cores, int(old) / int(period))
    return max(0.01, round(cores, 2))


def measure_memory_mb(root: Path = Path("/")) -> int:
    """Memory that jobs can have: the machine's, or less where a control group limits it."""
    match = re.search(r"^MemTotal:\s+(\d+) kB", _read(root / "proc/meminfo"), re.MULTILINE)
    limit = int(match[1]) * 1024 if match else 0
    for folder in _group_folders(root, "memory"):
        for file in ("memory.max", "memory.limit_in_bytes"):
            text = _read(folder / file)
            if text.isdigit() and int(text) < _UNLIMITED:
                limit = min(limit, int(text)) if limit else int(text)
    return limit >> 20


def find_nvidia_devices(root: Path = Path("/")) -> tuple[Device, ...]:
    """The NVIDIA devices, by nvidia-smi where it answers, else by what the driver shows."""
    indices = _device_indices(root, "nvidia")
    if not indices:
        return ()
    answer = _ask("nvidia-smi", "--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits")
    devices = []
    for line in answer.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 3 and fields[0].isdigit():
            memory = int(fields[2]) if fields[2].isdigit() else 0
            devices.append(Device("nvidia", int(fields[0]), fields[1], memory))
    if devices:
        return tuple(devices)
    models = {}
    for file in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        text = _read(file)
        minor = re.search(r"^Device Minor:\s*(\d+)", text, re.MULTILINE)
        model = re.search(r"^Model:\s*(.+)", text, re.MULTILINE)
        if minor:
            models[int(minor[1])] = model[1].strip() if model else ""
    return tuple(Device("nvidia", index, models.get(index, "")) for index in indices)


def find_ascend_devices(root: Path = Path("/")) -> tuple[Device, ...]:
    """The Ascend devices: /dev/davinciN, with their model where npu-smi tells it."""
    indices = _device_indices(root, "ascend")
    if not indices:
        return ()
    # A row of the table: "| 0     910B3    | OK   | ...", or with "0       0" (npu and chip) before the model.
    models = dict(
        re.findall(
            r"^\|\s*(\d+)(?:\s+\d+)?\s+([A-Za-z0-9][\w-]*)\s*\|", _ask("npu-smi", "info"), re.MULTILINE
        )
    )
    written = dict(re.findall(r"^\s*address_(\d+)\s*=\s*(\S+)", _read(root / "etc/hccn.conf"), re.MULTILINE))
    return tuple(
        Device(
            "ascend",
            index,
            models.get(str(index), ""),
            address=written.get(str(index)) or _ask_address(index),
        )
        for index in indices
    )


def _ask_address(index: int) -> str:
    """The address that a device has on the parameter plane, as the vendor's tool tells it."""
    found = re.search(r"ipaddr\s*:\s*(\S+)", _ask("hccn_tool", "-i", str(index), "-ip", "-g"))
    return found[1] if found else ""


def device_paths(kind: DeviceKind, indices: Iterable[int], root: Path = Path("/")) -> list[Path]:
    """The device files that a job with these devices needs; those that do not exist are left out."""
    indices = sorted(set(indices))
    if kind == "cpu" or not indices:
        return []
    names = [f"{_DEVICE_FILES[kind]}{index}" for index in indices]
    paths = [root / "dev" / name for name in (*names, *_SHARED_FILES[kind])]
    return [path for path in paths if path.exists()]


def _device_indices(root: Path, kind: DeviceKind) -> list[int]:
    prefix = _DEVICE_FILES[kind]
    try:
        names = os.listdir(root / "dev")
    except OSError:
        return []
    numbers = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    return sorted(int(number) for number in numbers if number.isdigit())


def _group_folders(root: Path, controller: str) -> list[Path]:
    """The control group folders of this process, from its own up to the root, version 1 and 2."""
    mount = root / "sys/fs/cgroup"
    folders: list[Path] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        if parts[1] == "":
            base = mount
        elif controller in parts[1].split(","):
            base = mount / controller
        else:
            continue
        own = base / parts[2].strip("/")
        # Inside a container the path may name what only the host sees: its root then is our own group.
        folders += [folder for folder in (own, *own.parents) if folder == base or base in folder.parents]
    return folders


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def _ask(program: str, *arguments: str) -> str:
    """What a vendor's tool prints, or nothing: a tool that is missing, hangs or fails stops no start."""
    path = shutil.which(program)
    if path is None:
        return ""
    try:
        answer = subprocess.run(
            [path, *arguments],
            capture_output=True,
            timeout=_QUERY_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.decode("utf-8", "replace") if answer.returncode == 0 else ""
