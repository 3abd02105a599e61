"""Control groups: limits on the memory, processes and CPU of a sandbox, version 2 or 1.

A group is made below the runner's own group (or beside it, where systemd delegated the parent), so that
limits around the platform keep holding. Its name carries the runner's PID namespace, pid and start time:
a group whose runner is dead can be told from a living one's and be removed.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from trainshed.model.late_pattern import late_pattern
from trainshed.runner.sandbox.spec import Usage

__all__ = ["ControlGroup", "remove_stale_groups"]

ROOT = Path("/sys/fs/cgroup")
WANTED = ("memory", "pids", "cpu")
PERIOD = 100_000
NAME = late_pattern(r"trainshed-(\d+)-(\d+)-(\d+)-\d+")
_count = 0


class ControlGroup:
    """The control group of one sandbox: one folder (version 2) or one per controller (version 1)."""

    def __init__(self) -> None:
        global _count
        _count += 1
        self.folders: dict[str, Path] = {}
        name = f"trainshed-{identify_namespace()}-{os.getpid()}-{read_start_time(os.getpid())}-{_count}"
        for controller, parent in find_parents().items():
            folder = parent / name
            try:
                folder.mkdir(exist_ok=True)
                if os.access(folder / "cgroup.procs", os.W_OK):
                    self.folders[controller] = folder
            except OSError:
                continue
        self.is_unified = (
            len(set(self.folders.values())) == 1
            and (next(iter(self.folders.values())) / "cgroup.type").exists()
        )

    @property
    def controllers(self) -> tuple[str, ...]:
        """Which of memory, pids and cpu this group can limit."""
        return tuple(name for name in WANTED if name in self.folders)

    def limit_memory(self, size: int) -> bool:
        """At most `size` bytes, swap included; True when the limit is in force."""
        if self.is_unified:
            self._write("memory", "memory.swap.max", "0")
            return self._write("memory", "memory.max", str(size))
        done = self._write("memory", "memory.limit_in_bytes", str(size))
        self._write("memory", "memory.memsw.limit_in_bytes", str(size))
        return done

    def limit_processes(self, count: int) -> bool:
        """At most `count` processes and threads."""
        return self._write("pids", "pids.max", str(count))

    def limit_cpu(self, cpus: float) -> bool:
        """At most the time of `cpus` processors."""
        quota = max(1000, int(cpus * PERIOD))
        if self.is_unified:
            return self._write("cpu", "cpu.max", f"{quota} {PERIOD}")
        self._write("cpu", "cpu.cfs_period_us", str(PERIOD))
        return self._write("cpu", "cpu.cfs_quota_us", str(quota))

    def add(self, pid: int) -> bool:
        """Move a process in; its later children are born inside."""
        done = bool(self.folders)
        for folder in set(self.folders.values()):
            try:
                (folder / "cgroup.procs").write_text(str(pid))
            except OSError:
                done = False
        return done

    def count_memory_kills(self) -> int:
        """How many processes of the group the kernel killed for want of memory."""
        file = "memory.events" if self.is_unified else "memory.oom_control"
        return read_fields(self.folders.get("memory"), file).get("oom_kill", 0)

    def read_usage(self) -> Usage:
        """What the group's processes use; the page cache that can be dropped is not counted."""
        memory = self.folders.get("memory")
        if self.is_unified:
            cpu = read_fields(self.folders.get("cpu"), "cpu.stat").get("usage_usec", 0) / 1e6
            current, peak = read_number(memory, "memory.current"), read_number(memory, "memory.peak")
            cache = read_fields(memory, "memory.stat").get("inactive_file", 0)
        else:
            cpu = read_number(self.folders.get("cpuacct"), "cpuacct.usage") / 1e9
            current = read_number(memory, "memory.usage_in_bytes")
            peak = read_number(memory, "memory.max_usage_in_bytes")
            cache = read_fields(memory, "memory.stat").get("total_inactive_file", 0)
        processes = read_number(self.folders.get("pids"), "pids.current")
        return Usage(cpu, max(0, current - cache), peak, processes)

    def remove(self) -> bool:
        """End whatever is left inside and remove the group."""
        done = True
        for folder in set(self.folders.values()):
            done = remove_group(folder) and done
        return done

    def _write(self, controller: str, file: str, value: str) -> bool:
        folder = self.folders.get(controller)
        if folder is None:
            return False
        try:
            (folder / file).write_text(value)
        except OSError:
            return False
        return True


def find_parents() -> dict[str, Path]:
    """Where a group can be made, per controller."""
    found: dict[str, Path] = {}
    unified = ""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return {}
    for line in lines:
        number, names, path = line.split(":", 2)
        if number == "0":
            unified = path
            continue
        for name in set(names.split(",")) & {*WANTED, "cpuacct"}:
            for mounted in (names, name):
                folder = ROOT / mounted / path.lstrip("/")
                if os.access(folder, os.W_OK):
                    found[name] = folder
                    break
    if found:
        return found
    own = ROOT / unified.lstrip("/")
    enabled = enable_controllers(own) or make_room(own)
    if enabled:
        return dict.fromkeys(enabled, own) if may_move_below(own) else {}
    # The platform sits in a leaf of a group that is its own, or whose children are limited already.
    if own != ROOT and may_move_below(own.parent):
        enabled = enable_controllers(own.parent) if is_delegated(own.parent) else read_enabled(own.parent)
    return dict.fromkeys(enabled, own.parent)


def may_move_below(folder: Path) -> bool:
    """Whether we may make a group in this one and move processes between its children."""
    return os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK)


def read_enabled(folder: Path) -> list[str]:
    """The limits that children of a version 2 group can have."""
    try:
        enabled = (folder / "cgroup.subtree_control").read_text().split()
    except OSError:
        return []
    return [name for name in WANTED if name in enabled]


def enable_controllers(folder: Path) -> list[str]:
    """Let children of a version 2 group be limited. The kernel refuses it for a group that has processes
    of its own; then the list is empty."""
    enabled = read_enabled(folder)
    try:
        available = (folder / "cgroup.controllers").read_text().split()
        for name in WANTED:
            if name in available and name not in enabled:
                (folder / "cgroup.subtree_control").write_text(f"+{name}")
    except OSError:
        return []
    return read_enabled(folder)


def is_delegated(folder: Path) -> bool:
    """Whether systemd gave this group to the service in it (Delegate=yes)."""
    for name in ("user.delegate", "trusted.delegate"):
        try:
            if os.getxattr(folder, name) == b"1":
                return True
        except OSError:
            continue
    return False


def make_room(own: Path) -> list[str]:
    """Move the processes of a group that was given to us into a leaf of it, so that it can have limited
    children; a container's root group is ours as well."""
    if not (is_delegated(own) or own == ROOT):
        return []
    leaf = own / "trainshed-platform"
    try:
        pids = (own / "cgroup.procs").read_text().split()
        leaf.mkdir(exist_ok=True)
        for pid in pids:
            (leaf / "cgroup.procs").write_text(pid)
    except OSError:
        return []
    return enable_controllers(own)


def remove_group(folder: Path, seconds: float = 3.0) -> bool:
    """Kill what is left in a group and remove its folder."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            folder.rmdir()
            return True
        except FileNotFoundError:
            return True
        except OSError:
            if time.monotonic() > deadline:
                return False
        try:
            (folder / "cgroup.kill").write_text("1")
        except OSError:
            for pid in read_processes(folder):
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
        time.sleep(0.005)


def remove_stale_groups() -> list[str]:
    """Remove the groups of runners that died without doing so, with any process left in them."""
    removed = []
    mine = identify_namespace()
    tops = [ROOT / name for name in (*WANTED, "cpuacct", "cpu,cpuacct") if (ROOT / name).is_dir()]
    for top in tops or [ROOT]:
        for here, folders, _ in os.walk(top):
            for name in folders:
                match = NAME.fullmatch(name)
                if match is None or int(match[1]) != mine:
                    continue
                if read_start_time(int(match[2])) == int(match[3]):
                    continue
                if remove_group(Path(here, name)):
                    removed.append(str(Path(here, name)))
            folders[:] = [name for name in folders if not NAME.fullmatch(name)]
    return removed


def identify_namespace() -> int:
    """The number of our PID namespace: pids of another one mean nothing here."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def read_start_time(pid: int) -> int:
    """When a process started, in ticks since the machine did; 0 when there is no such process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        return 0


def read_processes(folder: Path) -> list[int]:
    """The processes in a group, as seen from our PID namespace."""
    try:
        return [pid for pid in map(int, (folder / "cgroup.procs").read_text().split()) if pid > 1]
    except OSError:
        return []


def read_number(folder: Path | None, file: str) -> int:
    """A file with one number; 0 when it is not there."""
    try:
        return int((folder / file).read_text()) if folder else 0
    except (OSError, ValueError):
        return 0


def read_fields(folder: Path | None, file: str) -> dict[str, int]:
    """A file of lines `name number`."""
    try:
        lines = (folder / file).read_text().splitlines() if folder else []
    except OSError:
        return {}
    pairs = (line.split() for line in lines)
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
