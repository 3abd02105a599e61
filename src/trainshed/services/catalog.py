"""What the platform offers to jobs: flavors, engines and machines."""

from __future__ import annotations

from dataclasses import dataclass

from trainshed.db.engine import read
from trainshed.db.nodes import all_nodes
from trainshed.model import engines
from trainshed.model.engines import EnginePreset
from trainshed.model.flavor import Node, preset_flavors
from trainshed.services.access import require
from trainshed.services.identity import Caller
from trainshed.services.platform import Platform

__all__ = ["FlavorView", "list_engines", "list_flavors", "list_nodes"]


@dataclass(frozen=True)
class FlavorView:
    """What one node of a job can get, also in words."""

    name: str
    kind: str
    devices: int
    cpus: float
    memory_mb: int
    description: str


def list_nodes(platform: Platform, caller: Caller) -> list[Node]:
    """The machines that run jobs, as they last reported."""
    require(caller, "node.read")
    with read(platform.engine) as connection:
        return all_nodes(connection)


def list_flavors(platform: Platform, caller: Caller) -> list[FlavorView]:
    """The flavors that the machines can serve, smallest first."""
    return [
        FlavorView(
            flavor.name, flavor.kind, flavor.devices, flavor.cpus, flavor.memory_mb, flavor.describe()
        )
        for flavor in preset_flavors(list_nodes(platform, caller))
    ]


def list_engines(platform: Platform, caller: Caller) -> list[EnginePreset]:
    """The preset environments, by name."""
    require(caller, "node.read")
    return engines.list_engines()
