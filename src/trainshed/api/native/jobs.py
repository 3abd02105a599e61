"""Jobs: submit, list, show, stop, run again, delete, explain, watch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Body, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from trainshed.api.authentication import CallerOf, PlatformOf, authenticate
from trainshed.api.native.event_stream import EVENT_STREAM, HEARTBEAT, format_event
from trainshed.api.native.models import Model, RequestModel
from trainshed.api.native.streaming import OpenAnswer, TokenCheck
from trainshed.model.errors import TrainshedError, Unavailable
from trainshed.model.job_spec import parse_job_spec
from trainshed.model.phase import Phase
from trainshed.services import holding, jobs
from trainshed.services.identity import Caller
from trainshed.services.jobs import AttemptView, EventView, Explanation, JobView
from trainshed.services.platform import Platform

__all__ = ["router"]

router = APIRouter(tags=["jobs"])
_HEARTBEAT_SECONDS = 15.0
_PAUSE_SECONDS = 1.0
# Proxies give up on an answer that takes longer than a minute.
_LONGEST_WAIT = 50.0


class JobList(Model):
    """A page of jobs, newest first."""

    jobs: list[JobView]
    next_before: str = Field(description="Give it as `before` to get the next page; empty on the last page.")


class StopRequest(RequestModel):
    """Why a job is stopped."""

    reason: str = Field(default="", max_length=1000)


class HoldRequest(RequestModel):
    """How long a job is held open."""

    seconds: int = Field(description="Seconds from now, or from when its training ends.")


class RerunRequest(RequestModel):
    """How the new job is called."""

    name: str = Field(default="", description="Made up from the old name if left out.")


class EventList(Model):
    """A job's story in order."""

    events: list[EventView]


class AttemptList(Model):
    """Every start of a job, the first one first."""

    attempts: list[AttemptView]


class DryRun(Model):
    """What a submit would do. Nothing was stored."""

    spec: dict[str, Any] = Field(description="The job as it would be stored, secrets masked.")
    flavor: dict[str, Any] = Field(description="What each node would get.")
    launch: list[dict[str, Any]] = Field(description="The launch plan of every node.")
    script: str = Field(default="", description="The batch script, for a pool that is in Slurm.")


@router.get("/jobs", summary="List jobs")
def list_jobs(
    platform: PlatformOf,
    caller: CallerOf,
    phase: Annotated[str | None, Query(description="Only jobs in this phase.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="At most so many.")] = 50,
    before: Annotated[str | None, Query(description="The id of the last job of the page before.")] = None,
) -> JobList:
    """The jobs of your workspace, newest first."""
    found = jobs.list_jobs(platform, caller, phase=phase, limit=limit, before=before)
    return JobList(jobs=found, next_before=found[-1].id if len(found) == limit else "")


@router.post(
    "/jobs",
    status_code=201,
    summary="Submit a job",
    response_model=JobView,
    responses={200: {"model": DryRun, "description": "With dry_run: what would be done."}},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/JobSpec"}}},
        }
    },
)
def submit_job(
    platform: PlatformOf,
    caller: CallerOf,
    spec: Annotated[Any, Body()],
    dry_run: Annotated[bool, Query(description="Only tell what would be done.")] = False,
) -> JobView | JSONResponse:
    """The job's code is a snapshot that was uploaded before (`snapshot:DIGEST`) or a folder of the store."""
    # Parsed here and not by the framework: our own refusals name the field and the closest known word.
    job = parse_job_spec(spec)
    if dry_run:
        return JSONResponse(jobs.dry_run(platform, caller, job))
    return jobs.submit(platform, caller, job)


@router.get("/jobs/{job}", summary="Show a job")
async def get_job(
    platform: PlatformOf,
    caller: CallerOf,
    job: str,
    request: Request,
    wait: Annotated[
        float,
        Query(ge=0, le=_LONGEST_WAIT, description="Answer when it has ended, or after so many seconds."),
    ] = 0.0,
) -> JobView:
    """One job, by its name, its id or the unique beginning of its id."""
    found = await anyio.to_thread.run_sync(jobs.get_job, platform, caller, job)
    if not wait or Phase(found.phase).is_terminal:
        return found
    await _wait_for_end(request, found.id, wait)

    def read_again() -> JobView:
        # Much may have changed meanwhile, the caller's rights as well.
        return jobs.get_job(platform, authenticate(platform, request, "GET"), found.id)

    return await anyio.to_thread.run_sync(read_again)


async def _wait_for_end(request: Request, job_id: str, seconds: float) -> None:
    """Wait until a job has ended or is gone, at most so long. It costs no thread meanwhile."""
    deadline = time.monotonic() + seconds
    async with request.app.state.board.follow(job_id) as follower:
        while (left := deadline - time.monotonic()) > 0:
            follower.clear()
            pulse = follower.pulse
            if pulse is not None and (pulse.phase.is_terminal or pulse.deleted):
                return
            if await follower.wait(left) and follower.pulse is None:
                return


@router.delete("/jobs/{job}", status_code=204, summary="Delete a job")
def delete_job(platform: PlatformOf, caller: CallerOf, job: str) -> Response:
    """Delete a job that has ended, with its logs and metrics. Its outputs stay."""
    jobs.delete_job(platform, caller, job)
    return Response(status_code=204)


@router.post("/jobs/{job}/stop", status_code=202, summary="Stop a job")
def stop_job(platform: PlatformOf, caller: CallerOf, job: str, body: StopRequest | None = None) -> JobView:
    """Ask the job to stop: SIGTERM, then SIGKILL after its grace period. Asking twice changes nothing."""
    return jobs.stop_job(platform, caller, job, reason=body.reason if body else "")


@router.post("/jobs/{job}/hold", summary="Hold a job open")
def hold_job(platform: PlatformOf, caller: CallerOf, job: str, body: HoldRequest) -> JobView:
    """Keep a job whose training has ended open for so long; then it completes and gives its devices back."""
    return holding.hold_job(platform, caller, job, body.seconds)


@router.post("/jobs/{job}/rerun", status_code=201, summary="Run a job again")
def rerun_job(platform: PlatformOf, caller: CallerOf, job: str, body: RerunRequest | None = None) -> JobView:
    """A new job with the same code snapshot, environment, inputs and settings."""
    return jobs.rerun_job(platform, caller, job, name=body.name if body else "")


@router.get("/jobs/{job}/explain", summary="Explain a job")
def explain_job(platform: PlatformOf, caller: CallerOf, job: str) -> Explanation:
    """Why it waits, or how and why it ended, and the next step."""
    return jobs.explain_job(platform, caller, job)


@router.get("/jobs/{job}/events", summary="A job's story")
def list_events(
    platform: PlatformOf,
    caller: CallerOf,
    job: str,
    after: Annotated[int, Query(ge=0, description="Only events behind the one of this id.")] = 0,
) -> EventList:
    """What happened to the job: time, level, source, message."""
    return EventList(events=jobs.job_events(platform, caller, job, after_id=after))


@router.get("/jobs/{job}/attempts", summary="A job's attempts")
def list_attempts(platform: PlatformOf, caller: CallerOf, job: str) -> AttemptList:
    """Every start of the job: where it ran and how it ended."""
    return AttemptList(attempts=jobs.attempts(platform, caller, job))


@router.get(
    "/jobs/{job}/watch",
    summary="Watch a job",
    response_class=Response,
    responses={200: {"content": {EVENT_STREAM: {}}, "description": "Server-sent events."}},
)
def watch_job(platform: PlatformOf, caller: CallerOf, job: str, request: Request) -> OpenAnswer:
    """Server-sent events: `job` with the job whenever it changes, finally `end` with the reason."""
    found = jobs.get_job(platform, caller, job)
    return OpenAnswer(_watch(platform, caller, found, request), EVENT_STREAM)


async def _watch(
    platform: Platform, caller: Caller, job: JobView, request: Request
) -> AsyncGenerator[bytes, None]:
    threads = request.app.state.threads
    check = TokenCheck(platform, request)
    read = partial(jobs.get_job, platform, caller, job.id)
    async with request.app.state.board.follow(job.id) as follower:
        last: JobView | None = None
        while True:
            follower.clear()
            try:
                now = await threads.call(read)
                if check.is_due:
                    await threads.call(check.run)
            except Unavailable:
                # The database is away for a moment: that says nothing about the job.
                await asyncio.sleep(_PAUSE_SECONDS)
                yield HEARTBEAT
                continue
            except TrainshedError as fault:
                yield format_event({"reason": fault.message, "code": fault.code}, kind="end")
                return
            if now != last:
                last = now
                yield format_event(asdict(now), kind="job", event_id=now.version)
            if Phase(now.phase).is_terminal:
                yield format_event({"reason": f"The job is {now.phase}."}, kind="end")
                return
            if not await follower.wait(_HEARTBEAT_SECONDS):
                yield HEARTBEAT
