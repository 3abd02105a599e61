"""Files that a job left in its working folders."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from trainshed.api.authentication import CallerOf, PlatformOf
from trainshed.api.native.models import Model
from trainshed.services import leftovers
from trainshed.services.leftovers import Leftover

__all__ = ["router"]

router = APIRouter(tags=["jobs"])


class FileList(Model):
    """The files that an attempt left."""

    files: list[Leftover]


@router.get("/jobs/{job}/files", summary="List files that a job left")
def list_files(
    platform: PlatformOf,
    caller: CallerOf,
    job: str,
    attempt: Annotated[int | None, Query(ge=1, description="Of this attempt; else of the last one.")] = None,
) -> FileList:
    """What lay in the working folders at the end of an attempt, within the limit `leftovers_mb`."""
    return FileList(files=leftovers.list_leftovers(platform, caller, job, attempt))


@router.get(
    "/jobs/{job}/files/{path:path}",
    summary="Download a file that a job left",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/octet-stream": {}}}},
)
def read_file(
    platform: PlatformOf,
    caller: CallerOf,
    job: str,
    path: str,
    attempt: Annotated[int | None, Query(ge=1, description="Of this attempt; else of the last one.")] = None,
) -> StreamingResponse:
    """The exact bytes, except that secrets of the job are overwritten with asterisks."""
    size, pieces = leftovers.read_leftover(platform, caller, job, path, attempt)
    # Never shown as a page: what a job wrote must not run in the console's origin.
    headers = {
        "Content-Length": str(size),
        "Content-Disposition": "attachment",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox",
    }
    return StreamingResponse(pieces, media_type="application/octet-stream", headers=headers)
