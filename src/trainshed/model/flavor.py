"""Flavors (what a node of a job asks for) and nodes (what a machine has)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from trainshed.model.errors import InvalidInput, NotFound, suggest
from trainshed.model.size import count_cores

__all__ = [
    "ASCEND_COUNTS",
    "DEVICE_KINDS",
    "Device",
    "DeviceKind",
    "Flavor",
    "Node",
    "find_flavor",
    "parse_rehearsal",
    "preset_flavors",
]

DeviceKind = Literal["cpu", "nvidia", "ascend"]
DEVICE_KINDS: tuple[DeviceKind, ...] = ("cpu", "nvidia", "ascend")
# The devices of an Ascend server are connected in groups of four: other counts cannot reach one another.
ASCEND_COUNTS = (1, 2, 4, 8, 16)

_MEMORY_PER_CPU_MB = 4096


@dataclass(frozen=True)
class Flavor:
    """What one node of a job gets: `devices` accelerators of one kind, cores and memory.

    A flavor of kind `cpu` has no accelerators; its job runs one process per node. A flavor whose `cpus`
    and `memory_mb` are 0 reserves neither (rehearsal: eight pretend devices on a laptop of two cores).
    """

    name: str
    kind: DeviceKind
    devices: int
    cpus: float
    memory_mb: int

    @property
    def processes(self) -> int:
        """How many processes a preset engine starts per node: one per device, at least one."""
        return max(1, self.devices)

    def describe(self) -> str:
        """The flavor in words, as a user would say it."""
        parts = [] if self.kind == "cpu" else [f"{self.devices} x {self.kind}"]
        if self.cpus:
            parts.append(count_cores(self.cpus))
        if self.memory_mb:
            parts.append(f"{self.memory_mb / 1024:.3g} GiB")
        return ", ".join(parts) or "shared cores"


@dataclass(frozen=True)
class Device:
    """One accelerator of a node. A pretend one exists only in rehearsal."""

    kind: DeviceKind
    index: int
    model: str = ""
    memory_mb: int = 0
    pretend: bool = False
    # Its address on the network that devices have among themselves, where it has one.
    address: str = ""


@dataclass(frozen=True)
class Node:
    """A machine that runs jobs, as its engine describes it."""

    name: str
    pool: str
    cpus: float
    memory_mb: int
    devices: tuple[Device, ...] = field(default=())
    engine: str = "local"
    state: Literal["ready", "drained", "down"] = "ready"
    reason: str = ""
    # Several nodes of one job may be placed on this machine (each in a sandbox of its own).
    shareable: bool = True

    def count(self, kind: DeviceKind) -> int:
        """How many devices of a kind the machine has."""
        return sum(1 for device in self.devices if device.kind == kind)


def preset_flavors(nodes: Iterable[Node]) -> list[Flavor]:
    """The flavors that the given machines can serve, smallest first."""
    nodes = list(nodes)
    flavors: dict[str, Flavor] = {}
    most_cpus = max((int(node.cpus) for node in nodes), default=1)
    for cpus in _sizes(max(1, most_cpus)):
        memory = cpus * _MEMORY_PER_CPU_MB
        largest = max((node.memory_mb for node in nodes), default=memory)
        flavors[f"cpu.{cpus}"] = Flavor(f"cpu.{cpus}", "cpu", 0, cpus, min(memory, largest))
    for kind in DEVICE_KINDS[1:]:
        holders = [node for node in nodes if node.count(kind)]
        if not holders:
            continue
        most = max(node.count(kind) for node in holders)
        pretend = all(device.pretend for node in holders for device in node.devices if device.kind == kind)
        counts = [count for count in ASCEND_COUNTS if count <= most] if kind == "ascend" else _sizes(most)
        for count in counts:
            share = min(node.cpus / node.count(kind) for node in holders)
            memory = min(node.memory_mb // node.count(kind) for node in holders)
            name = f"{kind}.{count}"
            if pretend:
                flavors[name] = Flavor(name, kind, count, 0, 0)
            else:
                flavors[name] = Flavor(name, kind, count, round(share * count, 2), memory * count)
    return list(flavors.values())


def _sizes(most: int) -> list[int]:
    """1, 2, 4, 8, ... up to `most`, and `most` itself."""
    sizes = [size for size in (1 << power for power in range(12)) if size <= most]
    return sizes if sizes[-1] == most else [*sizes, most]


def find_flavor(name: str, flavors: Iterable[Flavor]) -> Flavor:
    """The flavor of that name; an unknown one is refused with the closest known name."""
    table = {flavor.name: flavor for flavor in flavors}
    if name not in table:
        raise NotFound(
            f"There is no flavor '{name}'.",
            hint=f"{suggest(name, table)} `trainshed flavors` lists what this platform offers.",
            code="unknown_flavor",
            where="flavor",
        )
    return table[name]


def parse_rehearsal(text: str) -> tuple[Device, ...]:
    """The pretend devices that a declaration such as `ascend:8` asks for."""
    match = re.fullmatch(r"(ascend|nvidia):([1-9][0-9]{0,2})", text)
    if match is None:
        raise InvalidInput(
            f"'{text}' does not declare devices for a rehearsal.",
            hint="Write ascend:8 or nvidia:4.",
            where="--rehearse",
        )
    kind: DeviceKind = "ascend" if match[1] == "ascend" else "nvidia"
    return tuple(Device(kind, index, "rehearsal", 0, True) for index in range(int(match[2])))
