"""The native API as one ASGI application; the console stands beside it under the same address."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from trainshed import __version__
from trainshed.api.authentication import current_caller
from trainshed.api.native import (
    catalog,
    code,
    credentials,
    files,
    health,
    jobs,
    logs,
    metrics,
    notifications,
    runners,
    ssh,
    tensorboard,
    tokens,
    users,
    workspaces,
)
from trainshed.api.native.errors import ErrorAnswer, install_error_handlers
from trainshed.api.native.guard import RequestGuard
from trainshed.api.native.pulse_board import PulseBoard
from trainshed.api.native.request_statistics import RequestStatistics
from trainshed.api.native.streaming import StreamThreads
from trainshed.model.job_spec import JobSpec
from trainshed.services.platform import Platform
from trainshed.services.pulse import PulseReader

__all__ = ["PREFIX", "create_app"]

PREFIX = "/api/v1"
_OWN_PATHS = ("/healthz", "/metrics")
_DESCRIPTION = """Submit training jobs, follow their logs and metrics, and manage access.

Send `Authorization: Bearer TOKEN` with every request. JOB is a job's name, its id, or the unique beginning of
its id. Every error is `{"error": {"code", "message", "hint", "where"}}`. Times are seconds since the epoch.
"""


def create_app(platform: Platform, console: ASGIApp | None = None) -> ASGIApp:
    """The application that the platform serves: the API below /api, all other paths are the console's."""
    app = _create_api(platform)
    statistics: RequestStatistics = app.state.statistics
    guarded = RequestGuard(app, statistics, unbounded=f"{PREFIX}/code/")
    if console is None:
        return guarded
    pages = console

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        is_api = scope["type"] == "lifespan" or path.startswith("/api/") or path in _OWN_PATHS
        await (guarded if is_api else pages)(scope, receive, send)

    return dispatch


def _create_api(platform: Platform) -> FastAPI:
    app = FastAPI(
        title="Trainshed",
        version=__version__,
        description=_DESCRIPTION,
        # The document is served by a route of our own, behind authentication.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=_operation_id,
        responses={"4XX": {"model": ErrorAnswer, "description": "The request was refused."}},
        redirect_slashes=False,
    )
    app.state.platform = platform
    app.state.statistics = RequestStatistics()
    app.state.threads = StreamThreads()
    app.state.tunnels = set()
    pulses = PulseReader(platform)
    app.state.board = PulseBoard(pulses.read, pulses.is_current)
    install_error_handlers(app)
    # Runners of other machines carry tokens of their own kind. They and jobs come first: routes are tried in order.
    app.include_router(runners.router, prefix=PREFIX)
    private = [Depends(current_caller)]
    for module in (
        jobs,
        logs,
        files,
        tensorboard,
        metrics,
        code,
        catalog,
        credentials,
        notifications,
        ssh,
        tokens,
        users,
        workspaces,
    ):
        app.include_router(module.router, prefix=PREFIX, dependencies=private)
    app.include_router(health.router)
    app.include_router(tokens.open_router, prefix=PREFIX)
    app.include_router(ssh.tunnel_router, prefix=PREFIX)

    @app.get(f"{PREFIX}/openapi.json", summary="This document", tags=["health"], dependencies=private)
    def openapi() -> dict[str, Any]:
        """The description of this API in the OpenAPI format."""
        return _describe(app)

    return app


def _describe(app: FastAPI) -> dict[str, Any]:
    document = app.openapi()
    # The submit route takes the raw body and parses it itself, so its schema is added by hand.
    document["components"]["schemas"]["JobSpec"] = JobSpec.model_json_schema()
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    return document


def _operation_id(route: APIRoute) -> str:
    return route.name
