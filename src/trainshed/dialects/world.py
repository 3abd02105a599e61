"""The world of a job: its nodes, their addresses and devices, its ranks and its ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainshed.model.queue import Placement
from trainshed.model.rank_table import RankDevice, Server, invent_device_address

__all__ = ["OWN_PORTS", "PORT_BLOCK", "Ports", "World", "WorldNode", "build_world", "servers_of"]

# Where a job has a network of its own, its ports are always the same.
OWN_PORTS = 29400
PORT_BLOCK = 128
_OFFSETS = {"master": 0, "mindspore": 1, "paddle": 2, "ssh": 3, "batch": 4, "rendezvous": 5, "process": 16}


@dataclass(frozen=True)
class Ports:
    """The ports of a job, all in one block, so that reserving the block reserves all of them."""

    base: int

    def of(self, purpose: str) -> int:
        """The port of a purpose; of `process`, every process of a node has one, counted from there."""
        return self.base + _OFFSETS[purpose]


@dataclass(frozen=True)
class WorldNode:
    """One node of the job."""

    index: int
    address: str
    names: tuple[str, ...]
    devices: tuple[int, ...]
    device_addresses: tuple[str, ...]
    cpus: float
    memory_mb: int

    @property
    def name(self) -> str:
        """The node's own host name."""
        return self.names[0]


@dataclass(frozen=True)
class World:
    """All nodes of a job. `processes` are started on each of them by the platform; `devices` is what each has, or
    its processes where it has none: what a script that starts its own processes counts with."""

    nodes: tuple[WorldNode, ...]
    processes: int
    devices: int
    ports: Ports

    @property
    def size(self) -> int:
        """How many processes the platform starts in all."""
        return self.processes * len(self.nodes)

    @property
    def device_count(self) -> int:
        """How many devices there are in all: the world's size for a script with one process per device."""
        return self.devices * len(self.nodes)

    @property
    def first(self) -> WorldNode:
        """The node at which the others meet."""
        return self.nodes[0]

    def rank(self, node: WorldNode, local: int) -> int:
        """The rank of a node's process."""
        return node.index * self.processes + local


def build_world(
    placements: Sequence[Placement], names: Sequence[tuple[str, ...]], processes: int, devices: int
) -> World:
    """The world of a job that was placed. A placement without an address is on the job's own loopback network."""
    nodes = tuple(
        WorldNode(
            index,
            placement.address or loopback_address(index),
            names[index],
            placement.devices,
            placement.device_addresses
            or tuple(invent_device_address(index, slot) for slot in range(len(placement.devices))),
            placement.cpus,
            placement.memory_mb,
        )
        for index, placement in enumerate(placements)
    )
    return World(nodes, processes, max(1, devices, processes), Ports(placements[0].ports or OWN_PORTS))


def servers_of(world: World) -> tuple[Server, ...]:
    """The job's nodes as a rank table names them."""
    return tuple(
        Server(
            node.address,
            node.name,
            tuple(
                RankDevice(device, address)
                for device, address in zip(node.devices, node.device_addresses, strict=True)
            ),
        )
        for node in world.nodes
    )


def loopback_address(index: int) -> str:
    """The address of a node on the loopback network: 127.0.0.1 is everybody's own, so they begin at 127.0.0.2."""
    number = index + 2
    return f"127.0.{number // 256}.{number % 256}"
