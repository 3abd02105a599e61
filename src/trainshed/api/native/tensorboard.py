"""TensorBoard for a job: a link to it, and its end."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field

from trainshed.api.authentication import CallerOf, PlatformOf
from trainshed.api.native.models import Model, RequestModel
from trainshed.services import tensorboard
from trainshed.services.tensorboard import OpenTool

__all__ = ["router"]

router = APIRouter(tags=["jobs"])


class TensorboardRequest(RequestModel):
    """Which folder is shown."""

    logdir: str = Field(
        default="",
        max_length=1000,
        description="A path of the job or an obs:// folder; left out, all events of the job are shown.",
    )


class StoppedTools(Model):
    """How many were ended."""

    stopped: int


@router.post("/jobs/{job}/tensorboard", summary="Open TensorBoard")
def open_tensorboard(
    platform: PlatformOf, caller: CallerOf, job: str, request: TensorboardRequest | None = None
) -> OpenTool:
    """A link that opens TensorBoard once, within five minutes, on the address of hosted tools."""
    return tensorboard.open_tensorboard(platform, caller, job, request.logdir if request else "")


@router.delete("/jobs/{job}/tensorboard", summary="Stop TensorBoard")
def stop_tensorboard(platform: PlatformOf, caller: CallerOf, job: str) -> StoppedTools:
    """End it for everybody; all links to it are worthless."""
    return StoppedTools(stopped=tensorboard.stop_tensorboard(platform, caller, job))
