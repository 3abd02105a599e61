"""The list of jobs, and what the machines have free."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from trainshed.console.site import Site
from trainshed.console.visitor import Visitor, visitor_of
from trainshed.model.errors import InvalidInput
from trainshed.model.phase import Phase
from trainshed.services.access import may
from trainshed.services.jobs import list_jobs
from trainshed.services.statistics import read_statistics

__all__ = ["JobListPages", "Overview", "digest_of"]

_PAGE = 50


@dataclass(frozen=True)
class Overview:
    """What the platform has and what of it is free."""

    nodes_ready: int
    nodes_all: int
    # (kind, free, all): cores first, then accelerators.
    resources: list[tuple[str, float, float]]


def digest_of(*values: Any) -> str:
    """A short word that changes when what a part of a page shows does."""
    return hashlib.sha256(repr(values).encode("utf-8", "surrogatepass")).hexdigest()[:16]


class JobListPages:
    """The list, as a page and as the part of it that is refreshed."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def home(self, request: Request) -> Response:
        """The first page is the list."""
        return RedirectResponse("/jobs", status_code=307)

    def show(self, request: Request) -> Response:
        """The whole page."""
        visitor = visitor_of(self._site.platform, request)
        return self._site.page(request, visitor, "jobs.html", **self._content(request, visitor))

    def refresh(self, request: Request) -> Response:
        """The rows alone; nothing if they are as the browser has them already."""
        visitor = visitor_of(self._site.platform, request)
        content = self._content(request, visitor)
        if content["digest"] == request.query_params.get("seen", ""):
            return Response(status_code=204)
        return self._site.renderer.page(
            "job_rows.html", visitor.language, now=self._site.platform.clock(), **content
        )

    def _content(self, request: Request, visitor: Visitor) -> dict[str, Any]:
        word, before = request.query_params.get("phase", ""), request.query_params.get("before", "")
        try:
            phase = Phase(word) if word else None
        except ValueError:
            raise InvalidInput(f"There is no phase '{word[:40]}'.", where="phase") from None
        found = list_jobs(
            self._site.platform, visitor.caller, phase=phase, limit=_PAGE + 1, before=before or None
        )
        jobs, more = found[:_PAGE], len(found) > _PAGE
        overview = self._overview(visitor)
        return {
            "jobs": jobs,
            "phase": word,
            "phases": list(Phase),
            "before": before,
            "older": jobs[-1].id if more else "",
            "overview": overview,
            "digest": digest_of([(job.id, job.version, job.owner) for job in jobs], more, overview),
        }

    def _overview(self, visitor: Visitor) -> Overview | None:
        if not may(visitor.caller, "node.read"):
            return None
        numbers = read_statistics(self._site.platform)
        resources = [("cpu", max(0.0, numbers.cpus - numbers.cpus_held), numbers.cpus)]
        resources += [
            (kind, max(0, count - numbers.devices_held.get(kind, 0)), count)
            for kind, count in sorted(numbers.devices.items())
        ]
        return Overview(numbers.nodes.get("ready", 0), sum(numbers.nodes.values()), resources)
