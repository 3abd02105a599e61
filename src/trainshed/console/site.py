"""What every page needs: the platform, the templates, and how a page of someone signed in is put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse

from trainshed.console.attempt_limit import AttemptLimit
from trainshed.console.language import LANGUAGE_COOKIE, LANGUAGES
from trainshed.console.rendering import Renderer
from trainshed.console.visitor import Visitor, language_of
from trainshed.model.errors import TrainshedError
from trainshed.services.platform import Platform
from trainshed.services.workspaces import WorkspaceView, list_workspaces

__all__ = ["Site"]


@dataclass(frozen=True)
class Site:
    """The console of one platform."""

    platform: Platform
    renderer: Renderer
    limit: AttemptLimit

    def page(
        self, request: Request, visitor: Visitor, template: str, *, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """A whole page for someone who is signed in."""
        workspaces = _workspaces(self.platform, visitor)
        return self._make(
            request,
            template,
            status,
            visitor=visitor,
            workspaces=workspaces,
            workspace=next((one for one in workspaces if one.id == visitor.caller.workspace_id), None),
            **values,
        )

    def open_page(self, request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        """A whole page for anybody."""
        return self._make(request, template, status, visitor=None, workspaces=[], workspace=None, **values)

    def _make(self, request: Request, template: str, status: int, **values: Any) -> HTMLResponse:
        language = language_of(request)
        # Relative to the page: a path such as //elsewhere must not become an address of its own.
        query = {name: value for name, value in request.query_params.items() if name not in ("lang", "done")}
        links = {other: "?" + urlencode({**query, "lang": other}) for other in LANGUAGES}
        response = self.renderer.page(
            template,
            language,
            status=status,
            now=self.platform.clock(),
            rehearse=self.platform.settings.rehearse,
            language_links=links,
            done=request.query_params.get("done", ""),
            **values,
        )
        if request.query_params.get("lang", "") == language:
            # Not a session: it holds a language and nothing about the visitor.
            response.set_cookie(LANGUAGE_COOKIE, language, max_age=365 * 86400, path="/", samesite="lax")
        return response


def _workspaces(platform: Platform, visitor: Visitor) -> list[WorkspaceView]:
    try:
        return list_workspaces(platform, visitor.caller)
    except TrainshedError:
        # The frame of a page must not fail it; the page's own content says what is not allowed.
        return []
