"""What the platform offers: flavors, engines, nodes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from trainshed.api.authentication import CallerOf, PlatformOf
from trainshed.api.native.models import Model
from trainshed.model.engines import EnginePreset
from trainshed.model.flavor import Node
from trainshed.services import catalog
from trainshed.services.catalog import FlavorView

__all__ = ["router"]

router = APIRouter(tags=["catalog"])


class FlavorList(Model):
    """Flavors of each pool, smallest first; the pool of jobs that name none comes first."""

    flavors: list[FlavorView]


class EngineList(Model):
    """Preset environments by name."""

    engines: list[EnginePreset]


class NodeList(Model):
    """Machines that run jobs."""

    nodes: list[Node]


@router.get("/flavors", summary="List flavors")
def list_flavors(
    platform: PlatformOf, caller: CallerOf, pool: Annotated[str, Query(max_length=80)] = ""
) -> FlavorList:
    """What a node of a job can get, in each pool or in the one that is named."""
    return FlavorList(flavors=catalog.list_flavors(platform, caller, pool))


@router.get("/engines", summary="List engines")
def list_engines(platform: PlatformOf, caller: CallerOf) -> EngineList:
    """The preset environments that a job can name."""
    return EngineList(engines=catalog.list_engines(platform, caller))


@router.get("/nodes", summary="List nodes")
def list_nodes(
    platform: PlatformOf, caller: CallerOf, pool: Annotated[str, Query(max_length=80)] = ""
) -> NodeList:
    """The machines that run jobs, as they last reported: of all pools, or of the one that is named."""
    return NodeList(nodes=catalog.list_nodes(platform, caller, pool))
