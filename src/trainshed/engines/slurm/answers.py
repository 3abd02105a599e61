"""What Slurm's commands print, read into plain data. Pure: text in, data out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from trainshed.engines.engine import Allocation
from trainshed.model.flavor import Device, DeviceKind, Node

__all__ = [
    "QUEUE_FORMAT",
    "SACCT_FORMAT",
    "JobEnd",
    "QueuedJob",
    "expand_hosts",
    "read_accounting",
    "read_allocation",
    "read_end",
    "read_gres",
    "read_minutes",
    "read_nodes",
    "read_partitions",
    "read_queue",
    "read_setting",
]

# The name comes last: it is the only field in which others may write a divider.
QUEUE_FORMAT = "%i|%T|%r|%N|%S|%u|%P|%j"
SACCT_FORMAT = "JobID,State,ExitCode,Submit,JobName%256"
_KINDS: dict[str, DeviceKind] = {"nvidia": "nvidia", "ascend": "ascend"}
_GRES = re.compile(r"([A-Za-z0-9_.-]+)(?::([A-Za-z][A-Za-z0-9_.-]*))?:(\d+)(?:\((?:S:[^)]*|IDX:([^)]*))\))?")
_LIVE = ("PENDING", "RUNNING", "SUSPENDED", "RESIZING", "COMPLETING", "CONFIGURING", "STOPPED")
NodeState = Literal["ready", "drained", "down"]
_STATE_WORDS: dict[str, NodeState] = {
    "DRAIN": "drained",
    "DRAINED": "drained",
    "DRAINING": "drained",
    "MAINT": "drained",
    "RESERVED": "drained",
    "PLANNED": "ready",
}
_DOWN = ("DOWN", "FAIL", "NOT_RESPONDING", "POWERED_DOWN", "UNKNOWN", "FUTURE", "INVALID")


@dataclass(frozen=True)
class QueuedJob:
    """A line of squeue: a job that Slurm still knows, running, waiting or just ended."""

    id: int
    state: str
    reason: str
    hosts: str
    starts_at: str
    user: str
    partition: str
    name: str

    @property
    def is_waiting(self) -> bool:
        """Whether it has not started."""
        return self.state in (
            "PENDING",
            "CONFIGURING",
            "REQUEUED",
            "REQUEUE_HOLD",
            "REQUEUE_FED",
            "SPECIAL_EXIT",
        )

    @property
    def is_over(self) -> bool:
        """Whether it has ended for good."""
        return not self.is_waiting and self.state not in (
            *("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"),
        )


@dataclass(frozen=True)
class JobEnd:
    """How Slurm says that a job ended."""

    state: str
    reason: str = ""
    exit_code: int = 0
    signal: int = 0


def read_queue(text: str) -> list[QueuedJob]:
    """The lines of `squeue -h -o QUEUE_FORMAT`. Lines that are something else are left out."""
    jobs = []
    for line in text.splitlines():
        parts = line.split("|", 7)
        # An element of an array has an id such as 12_3: never one of ours.
        if len(parts) == 8 and parts[0].isdigit():
            number, state, reason, hosts, start, user, partition, name = parts
            jobs.append(QueuedJob(int(number), state, reason, hosts, start, user, partition, name))
    return jobs


def read_nodes(text: str, pool: str, partition: str, gres: Mapping[str, str]) -> list[Node]:
    """The machines of a partition, from `scontrol -o show nodes`; an empty partition takes all."""
    kinds = {name: _KINDS[kind] for kind, name in gres.items()}
    nodes = []
    for line in text.splitlines():
        facts = _pairs(line)
        if "NodeName" not in facts:
            continue
        if partition and not set(partition.split(",")) & set(facts.get("Partitions", "").split(",")):
            continue
        state, words = _node_state(facts.get("State", "UNKNOWN"))
        reason = re.search(r"\bReason=(.*?)(?: \[[^\]]*\])?\s*$", line)
        memory = _number(facts.get("RealMemory", "0"))
        nodes.append(
            Node(
                name=facts["NodeName"],
                pool=pool,
                cpus=float(_number(facts.get("CPUEfctv") or facts.get("CPUTot", "0"))),
                # 1 MB is what Slurm says where the site configured none.
                memory_mb=memory if memory > 1 else 0,
                devices=tuple(_devices(facts.get("Gres", ""), kinds)),
                engine="slurm",
                state=state,
                reason="" if state == "ready" else (reason[1].strip() if reason else words),
                shareable=False,
            )
        )
    return nodes


def read_gres(text: str, partition: str) -> list[str]:
    """The names of all generic resources that machines of a partition have, from `scontrol -o show nodes`."""
    names: set[str] = set()
    for line in text.splitlines():
        facts = _pairs(line)
        if not partition or set(partition.split(",")) & set(facts.get("Partitions", "").split(",")):
            names |= {found[1] for found in _GRES.finditer(facts.get("Gres", ""))}
    return sorted(names)


def read_partitions(text: str) -> dict[str, dict[str, str]]:
    """The partitions of `scontrol -o show partitions`, by name."""
    rows = [_pairs(line) for line in text.splitlines()]
    return {row["PartitionName"]: row for row in rows if "PartitionName" in row}


def read_setting(text: str, name: str) -> str:
    """One of the site's settings, from `scontrol show config`; empty where it is not told."""
    for line in text.splitlines():
        key, is_set, value = line.partition("=")
        if is_set and key.strip() == name:
            return value.strip()
    return ""


def read_minutes(text: str) -> int:
    """A limit such as `1-00:30:00`, `02:00:00` or `30` in minutes; 0 for none (UNLIMITED, INFINITE)."""
    days, _, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdigit() for part in parts) or (days and not days.isdigit()) or len(parts) > 3:
        return 0
    if days:
        hours, minutes = int(parts[0]), int(parts[1]) if len(parts) > 1 else 0
    elif len(parts) == 3:
        hours, minutes = int(parts[0]), int(parts[1])
    else:
        hours, minutes = 0, int(parts[0])
    return (int(days or 0) * 24 + hours) * 60 + minutes


def read_allocation(text: str, names: Iterable[str] = ("gpu", "npu")) -> list[Allocation]:
    """The machines of a job in their order, each with its devices' indices, from `scontrol -d show job`."""
    wanted = set(names)
    hosts: list[str] = []
    devices: dict[str, tuple[int, ...]] = {}
    for line in text.splitlines():
        if found := re.match(r"\s*NodeList=(\S+)", line):
            hosts = expand_hosts(found[1]) if found[1] != "(null)" else []
        elif found := re.match(r"\s*Nodes=(\S+) CPU_IDs=.*?GRES=(\S*)", line):
            indices: list[int] = []
            for item in _GRES.finditer(found[2]):
                if item[1] in wanted and item[4]:
                    indices += _expand_numbers(item[4])
            for host in expand_hosts(found[1]):
                devices[host] = tuple(sorted(indices))
    return [Allocation(host, devices.get(host, ())) for host in hosts]


def read_end(text: str) -> JobEnd | None:
    """How a job ended, from `scontrol show job`; None where the text tells nothing."""
    state = re.search(r"\bJobState=(\S+)", text)
    if state is None:
        return None
    reason = re.search(r"\bReason=(.*?)(?: Dependency=|$)", text, re.MULTILINE)
    codes = re.search(r"(?<!Derived)ExitCode=(\d+):(\d+)", text)
    # A job that leaves within its GraceTime ends as whatever its script says; only this tells that it had to.
    is_preempted = re.search(r"\bPreemptTime=\d", text) is not None
    return JobEnd(
        "PREEMPTED" if is_preempted else state[1],
        "" if reason is None or reason[1] == "None" else reason[1],
        int(codes[1]) if codes else 0,
        int(codes[2]) if codes else 0,
    )


def read_accounting(text: str, name: str) -> JobEnd | None:
    """How the latest job of that name ended, from `sacct -n -P -X -o SACCT_FORMAT`.

    None for one that has not ended: a controller that died may have lost it, and slurmdbd waits for its end for ever.
    """
    latest: tuple[str, int, JobEnd] | None = None
    for line in text.splitlines():
        parts = line.split("|", 4)
        if len(parts) != 5 or parts[4].strip() != name or not parts[0].isdigit():
            continue
        code, _, signal = parts[2].partition(":")
        # CANCELLED by 1000
        state, _, more = parts[1].partition(" ")
        end = JobEnd(state, more, _number(code), _number(signal))
        if latest is None or (parts[3], int(parts[0])) >= latest[:2]:
            latest = (parts[3], int(parts[0]), end)
    return latest[2] if latest and latest[2].state not in _LIVE else None


def expand_hosts(text: str) -> list[str]:
    """The names that a host list such as `n[1-3,07],login` means, in their order."""
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        names += _expand_host(part)
    return names


def _expand_host(text: str) -> list[str]:
    match = re.match(r"([^\[]*)\[([^\]]*)\](.*)", text)
    if match is None:
        return [text]
    names = []
    for piece in match[2].split(","):
        first, _, last = piece.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            continue
        for number in range(int(first), int(last or first) + 1):
            names += [f"{match[1]}{number:0{len(first)}d}{rest}" for rest in _expand_host(match[3])]
    return names


def _expand_numbers(text: str) -> list[int]:
    """0-2,5 -> 0, 1, 2, 5; N/A -> nothing."""
    numbers: list[int] = []
    for piece in text.split(","):
        first, _, last = piece.partition("-")
        if first.isdigit():
            numbers += range(int(first), int(last if last.isdigit() else first) + 1)
    return numbers


def _devices(text: str, kinds: Mapping[str, DeviceKind]) -> list[Device]:
    devices: list[Device] = []
    for found in _GRES.finditer(text):
        if found[1] in kinds:
            kind = kinds[found[1]]
            have = sum(device.kind == kind for device in devices)
            devices += [Device(kind, have + index, found[2] or "") for index in range(int(found[3]))]
    return devices


def _node_state(text: str) -> tuple[NodeState, str]:
    """`ready`, `drained` or `down`, and Slurm's own words."""
    words = text.rstrip("*~#!%$@^-").upper().split("+")
    if text.endswith("*") or any(word in _DOWN for word in words):
        return "down", text.lower()
    return next((_STATE_WORDS[word] for word in words if word in _STATE_WORDS), "ready"), text.lower()


def _pairs(line: str) -> dict[str, str]:
    return dict(re.findall(r"(?:^|\s)([A-Za-z][A-Za-z/:]*)=(\S*)", line))


def _number(text: str) -> int:
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 0
