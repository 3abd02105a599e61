"""What the platform offers: flavors, engines and machines."""

from __future__ import annotations

from dataclasses import dataclass

from trainshed.db.engine import read
from trainshed.db.nodes import all_nodes
from trainshed.model.engines import EnginePreset
from trainshed.model.engines import list_engines as preset_engines
from trainshed.model.flavor import Node
from trainshed.model.pools import find_pool, flavors_of, nodes_of
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
    # Of which pool's machines: the same name may mean more cores or memory elsewhere.
    pool: str = ""


def list_flavors(platform: Platform, caller: Caller, pool: str = "") -> list[FlavorView]:
    """The flavors that a job can name in each pool, or in one of them; the default pool's come first."""
    require(caller, "node.read")
    with read(platform.engine) as connection:
        nodes = all_nodes(connection)
    pools = platform.settings.all_pools
    first = find_pool(pool, pools)
    wanted = (first,) if pool else (first, *(each for each in pools if each != first))
    return [
        FlavorView(f.name, f.kind, f.devices, f.cpus, f.memory_mb, f.describe(), each.name)
        for each in wanted
        for f in (flavors_of(each, nodes) if nodes_of(each, nodes) else ())
    ]


def list_engines(platform: Platform, caller: Caller) -> list[EnginePreset]:
    """The preset environments that a job can name."""
    require(caller, "node.read")
    return preset_engines(platform.settings.engines)


def list_nodes(platform: Platform, caller: Caller, pool: str = "") -> list[Node]:
    """The machines that run jobs: all of them, or those of one pool."""
    require(caller, "node.read")
    with read(platform.engine) as connection:
        nodes = all_nodes(connection)
    return nodes_of(find_pool(pool, platform.settings.all_pools), nodes) if pool else nodes
