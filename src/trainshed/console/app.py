"""The console as one ASGI application."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.types import ASGIApp

from trainshed.console.attempt_limit import AttemptLimit
from trainshed.console.error_pages import ErrorPages
from trainshed.console.job_list import JobListPages
from trainshed.console.job_page import JobPages
from trainshed.console.rendering import Renderer
from trainshed.console.security import PageGuard
from trainshed.console.sign_in import SignInPages
from trainshed.console.site import Site
from trainshed.console.static_files import CachedFiles, fingerprint_files
from trainshed.model.errors import TrainshedError
from trainshed.services.platform import Platform

__all__ = ["create_console"]


def create_console(platform: Platform) -> ASGIApp:
    """The pages of a platform, for all paths that are not the API's."""
    fingerprint = fingerprint_files()
    site = Site(platform, Renderer(fingerprint), AttemptLimit())
    doors, listing, job, errors = SignInPages(site), JobListPages(site), JobPages(site), ErrorPages(site)

    async def answer_known(request: Request, fault: Exception) -> Response:
        assert isinstance(fault, TrainshedError)
        return await run_in_threadpool(errors.known, request, fault)

    async def answer_http(request: Request, fault: Exception) -> Response:
        assert isinstance(fault, HTTPException)
        return await run_in_threadpool(errors.http, request, fault.status_code)

    # Without Starlette's outermost layer, which would answer our own faults in plain text.
    pages = Router(
        routes=[
            Route("/", listing.home),
            Route("/login", doors.show),
            Route("/login", doors.sign_in, methods=["POST"]),
            Route("/logout", doors.sign_out, methods=["POST"]),
            Route("/workspace", doors.switch, methods=["POST"]),
            Route("/jobs", listing.show),
            Route("/jobs/{job}", job.show),
            Route("/jobs/{job}/log", job.download),
            Route("/jobs/{job}/tensorboard", job.tensorboard),
            Route("/jobs/{job}/stop", job.stop, methods=["POST"]),
            Route("/jobs/{job}/rerun", job.rerun, methods=["POST"]),
            Route("/jobs/{job}/delete", job.delete, methods=["POST"]),
            # What browsers ask for by themselves.
            Route("/favicon.ico", lambda _: RedirectResponse("/static/icon.svg", status_code=301)),
            # Parts of pages, fetched by htmx.
            Route("/parts/jobs", listing.refresh),
            Route("/parts/told", job.tell),
            Route("/parts/jobs/{job}", job.refresh),
            Mount("/static", CachedFiles(fingerprint)),
        ],
        redirect_slashes=False,
    )
    handlers = {TrainshedError: answer_known, HTTPException: answer_http}
    return PageGuard(ExceptionMiddleware(pages, handlers), errors.unexpected, platform.settings.public_url)
