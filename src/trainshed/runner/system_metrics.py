"""How much of a node a job uses: processor, memory and devices, sampled while it trains."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from trainshed.model.flavor import DeviceKind

__all__ = ["SystemSampler", "UsageSource", "measure_processes"]

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_DEVICE_SECONDS = 15.0
_MOST_PROCESSES = 2000


class UsageSource(Protocol):
    """What a job has used so far: a sandbox's own count, for example of its control group."""

    @property
    def cpu_seconds(self) -> float:
        """Processor time since the start."""
        ...

    @property
    def memory_bytes(self) -> int:
        """Memory in use now."""
        ...


class SystemSampler:
    """Takes samples of one node of a job; each is a plain dict for one line of `system.jsonl`.

    `sample` never waits: device tools take up to a second, so a thread asks them and a sample carries the
    latest answer.
    """

    def __init__(self, *, device_kind: DeviceKind = "cpu", devices: Sequence[int] = ()) -> None:
        self._kind = device_kind
        self._devices = tuple(devices)
        self._last: tuple[float, float] | None = None
        self._device_samples: list[dict[str, Any]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        program = {"nvidia": "nvidia-smi", "ascend": "npu-smi"}.get(device_kind)
        self._program: str | None = None
        if program and devices:
            import shutil

            self._program = shutil.which(program)

    def start(self) -> None:
        """Begin to ask for device use, where the node has devices and a tool that tells."""
        if self._program and self._thread is None:
            self._thread = threading.Thread(target=self._watch_devices, name="device-use", daemon=True)
            self._thread.start()

    @property
    def is_device_used(self) -> bool:
        """Whether a device was at work when it was last looked at; False where nobody can tell."""
        return any(sample.get("utilization", 0) for sample in self._device_samples)

    def stop(self) -> None:
        """Ask no more. Returns at once."""
        self._stop.set()

    def sample(self, now: float, *, usage: UsageSource | None = None, root_pid: int = 0) -> dict[str, Any]:
        """The node's use at the time `now`: of the sandbox's own count, or of a process and its children.

        `cpu` is cores in use since the sample before (1.0 is one whole core).
        """
        if usage is not None:
            cpu_seconds, memory, processes = usage.cpu_seconds, usage.memory_bytes, -1
        else:
            cpu_seconds, memory, processes = measure_processes(root_pid or os.getpid())
        cores = 0.0
        if self._last is not None and now > self._last[0]:
            # Processes that ended take their time with them: a smaller sum is no negative use.
            cores = max(0.0, (cpu_seconds - self._last[1]) / (now - self._last[0]))
        self._last = (now, cpu_seconds)
        line: dict[str, Any] = {
            "time": now,
            "cpu": round(cores, 3),
            "cpu_seconds": round(cpu_seconds, 2),
            "memory_bytes": memory,
        }
        if processes >= 0:
            line["processes"] = processes
        if self._device_samples:
            line["devices"] = self._device_samples
        return line

    def _watch_devices(self) -> None:
        while not self._stop.is_set():
            read = _read_nvidia if self._kind == "nvidia" else _read_ascend
            self._device_samples = read(str(self._program), self._devices)
            self._stop.wait(_DEVICE_SECONDS)


def measure_processes(root_pid: int) -> tuple[float, int, int]:
    """Processor seconds, resident bytes and number of a process and all that descend from it."""
    seconds, resident, seen = 0.0, 0, 0
    waiting = [root_pid]
    while waiting and seen < _MOST_PROCESSES:
        pid = waiting.pop()
        try:
            fields = _slurp(f"/proc/{pid}/stat").rpartition(b")")[2].split()
            pages = int(_slurp(f"/proc/{pid}/statm").split()[1])
        except (OSError, IndexError, ValueError):
            continue
        seen += 1
        # utime and stime, and those of children that ended and were waited for.
        seconds += sum(int(fields[index]) for index in (11, 12, 13, 14)) / _TICKS
        resident += pages * _PAGE
        try:
            tasks = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        for task in tasks:
            try:
                waiting += [int(child) for child in _slurp(f"/proc/{pid}/task/{task}/children").split()]
            except (OSError, ValueError):
                continue
    return seconds, resident, seen


def _slurp(path: str) -> bytes:
    """A small file of /proc, without the cost of a file object."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)


def _read_nvidia(program: str, devices: Sequence[int]) -> list[dict[str, Any]]:
    text = _ask(
        program,
        f"--id={','.join(map(str, devices))}",
        "--query-gpu=index,utilization.gpu,memory.used,temperature.gpu,power.draw",
        "--format=csv,noheader,nounits",
    )
    samples = []
    for line in text.splitlines():
        fields = [_number(field) for field in line.split(",")]
        if len(fields) == 5 and fields[0] is not None:
            names = ("index", "utilization", "memory_mb", "temperature", "power_watts")
            found = {name: value for name, value in zip(names, fields, strict=True) if value is not None}
            samples.append({"kind": "nvidia", **found, "index": int(fields[0])})
    return samples


def _read_ascend(program: str, devices: Sequence[int]) -> list[dict[str, Any]]:
    samples = []
    for index in devices:
        sample: dict[str, Any] = {"kind": "ascend", "index": index}
        for line in _ask(program, "info", "-t", "usages", "-i", str(index)).splitlines():
            name, _, value = line.partition(":")
            number = _number(value)
            if number is None:
                continue
            if "Aicore Usage Rate" in name:
                sample["utilization"] = number
            elif "HBM Usage Rate" in name:
                sample["memory_percent"] = number
        if len(sample) > 2:
            samples.append(sample)
    return samples


def _number(text: str) -> float | None:
    try:
        return float(text.strip())
    except ValueError:
        return None


def _ask(program: str, *arguments: str) -> str:
    import subprocess

    try:
        answer = subprocess.run(
            [program, *arguments], capture_output=True, timeout=10, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.decode("utf-8", "replace") if answer.returncode == 0 else ""
