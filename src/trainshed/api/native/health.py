"""How the platform is: for load balancers and for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse

from trainshed import __version__
from trainshed.api.authentication import PlatformOf, authenticate
from trainshed.api.native.exposition import CONTENT_TYPE, sample
from trainshed.api.native.models import Model
from trainshed.model.errors import TrainshedError
from trainshed.model.phase import Phase
from trainshed.services.statistics import Statistics, check_database, read_statistics

__all__ = ["router"]

router = APIRouter(tags=["health"])


class Health(Model):
    """Whether this process can serve."""

    status: str
    version: str


@router.get("/healthz", summary="Tell whether the API can serve", responses={503: {"model": Health}})
def healthz(platform: PlatformOf) -> JSONResponse:
    """200 if the API and its database answer, else 503. Needs no credential."""
    try:
        check_database(platform)
    except TrainshedError as fault:
        return JSONResponse({"status": fault.message, "version": __version__}, status_code=503)
    return JSONResponse({"status": "ok", "version": __version__})


@router.get("/metrics", summary="The platform's own metrics for Prometheus", response_class=PlainTextResponse)
def metrics(platform: PlatformOf, request: Request) -> PlainTextResponse:
    """Jobs by phase, queue length, use of devices, requests.

    A job reaches this machine's loopback too, so that even from here a credential is needed.
    """
    authenticate(platform, request, request.method)
    lines = [
        *_describe(read_statistics(platform)),
        sample("trainshed_followers", request.app.state.board.followers),
        *request.app.state.statistics.expose(),
    ]
    return PlainTextResponse("\n".join(lines) + "\n", media_type=CONTENT_TYPE)


def _describe(numbers: Statistics) -> Iterator[str]:
    yield "# HELP trainshed_info The version of the platform."
    yield "# TYPE trainshed_info gauge"
    yield sample("trainshed_info", 1, version=__version__)
    yield "# HELP trainshed_jobs Jobs that were not deleted, by phase."
    yield "# TYPE trainshed_jobs gauge"
    for phase, count in numbers.jobs.items():
        yield sample("trainshed_jobs", count, phase=phase.value)
    yield "# HELP trainshed_queue_length Jobs that wait for their turn."
    yield "# TYPE trainshed_queue_length gauge"
    yield sample("trainshed_queue_length", numbers.jobs[Phase.PENDING])
    yield "# HELP trainshed_devices Accelerators of all machines, by kind."
    yield "# TYPE trainshed_devices gauge"
    for kind, count in sorted(numbers.devices.items()):
        yield sample("trainshed_devices", count, kind=kind)
    yield "# HELP trainshed_devices_held Accelerators that jobs hold, by kind."
    yield "# TYPE trainshed_devices_held gauge"
    for kind, count in sorted(numbers.devices_held.items()):
        yield sample("trainshed_devices_held", count, kind=kind)
    yield "# HELP trainshed_cpus Cores of all machines."
    yield "# TYPE trainshed_cpus gauge"
    yield sample("trainshed_cpus", numbers.cpus)
    yield "# HELP trainshed_cpus_held Cores that jobs hold."
    yield "# TYPE trainshed_cpus_held gauge"
    yield sample("trainshed_cpus_held", numbers.cpus_held)
    yield "# HELP trainshed_nodes Machines, by state."
    yield "# TYPE trainshed_nodes gauge"
    for state, count in sorted(numbers.nodes.items()):
        yield sample("trainshed_nodes", count, state=state)
    yield "# HELP trainshed_followers Connections that follow a job or a log."
    yield "# TYPE trainshed_followers gauge"
