"""Where people are told about their jobs."""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import Field

from trainshed.api.authentication import CallerOf, PlatformOf
from trainshed.api.native.models import Model, RequestModel
from trainshed.model.notification import DEFAULT_EVENTS
from trainshed.services import notifications
from trainshed.services.notifications import NewTarget, TargetView

__all__ = ["router"]

router = APIRouter(tags=["notifications"])


class TargetRequest(RequestModel):
    """A place to be told at."""

    address: str = Field(description="A URL that gets signed messages, or a mail address.")
    events: list[str] = Field(default=list(DEFAULT_EVENTS), description="What to be told about.")
    covers_workspace: bool = Field(default=False, description="All jobs of the workspace, not only your own.")


class TargetList(Model):
    """Your places, and those that cover the whole workspace."""

    targets: list[TargetView]


@router.get("/notifications", summary="List where you are told")
def list_targets(platform: PlatformOf, caller: CallerOf) -> TargetList:
    """Your places in this workspace, and those that cover all of it, each with how the last message went."""
    return TargetList(targets=notifications.list_targets(platform, caller))


@router.post("/notifications", status_code=201, summary="Add a place to be told at")
def add_target(platform: PlatformOf, caller: CallerOf, body: TargetRequest) -> NewTarget:
    """Add a place. The secret that signs messages to a URL is shown this once."""
    return notifications.add_target(
        platform, caller, body.address, body.events, covers_workspace=body.covers_workspace
    )


@router.delete("/notifications/{target}", status_code=204, summary="Remove a place")
def remove_target(platform: PlatformOf, caller: CallerOf, target: str) -> Response:
    """Remove a place; what is on its way there is not sent any more."""
    notifications.remove_target(platform, caller, target)
    return Response(status_code=204)


@router.post("/notifications/{target}/test", status_code=202, summary="Try a place")
def try_target(platform: PlatformOf, caller: CallerOf, target: str) -> Response:
    """Send a message that only says that messages arrive; the list then shows how it went."""
    notifications.test_target(platform, caller, target)
    return Response(status_code=202)
