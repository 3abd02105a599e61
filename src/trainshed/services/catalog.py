"""What the platform offers: flavors, engines and machines."""

from __future__ import annotations

from dataclasses import dataclass

from trainshed.db.engine import read
from trainshed.db.nodes import all_nodes
from trainshed.model.engines import EnginePreset
from trainshed.model.engines import list_engines as preset_engines
from trainshed.model.flavor import Flavor, Node
from trainshed.model.pools import flavors_of
from trainshed.services.access import require
from trainshed.services.identity import Caller
from trainshed.services.platform import Platform

__all__ = ["FlavorView", "list_engines", "list_flavors", "list_nodes"]


@dataclass(frozen=True)
class FlavorView:
    """What a node of a job can get."""

    name: str
    kind: str
    devices: int
    cpus: float
    memory_mb: int
    description: str


def list_flavors(platform: Platform, caller: Caller) -> list[FlavorView]:
    """The flavors that a job can name, smallest first."""
    require(caller, "node.read")
    with read(platform.engine) as connection:
        nodes = all_nodes(connection)
    table: dict[str, Flavor] = {}
    for pool in platform.settings.all_pools:
        for flavor in flavors_of(pool, nodes):
            table.setdefault(flavor.name, flavor)
    flavors = table.values()
    return [FlavorView(f.name, f.kind, f.devices, f.cpus, f.memory_mb, f.describe()) for f in flavors]


def list_engines(platform: Platform, caller: Caller) -> list[EnginePreset]:
    """The preset environments that a job can name."""
    require(caller, "node.read")
    return preset_engines(platform.settings.engines)


def list_nodes(platform: Platform, caller: Caller) -> list[Node]:
    """The machines that run jobs."""
    require(caller, "node.read")
    with read(platform.engine) as connection:
        return all_nodes(connection)
