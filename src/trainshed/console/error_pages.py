"""Errors as pages: what happened, and the next step."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from trainshed.console.site import Site
from trainshed.console.visitor import ask_to_sign_in, visitor_of
from trainshed.model.errors import NotAuthenticated, TrainshedError

__all__ = ["ErrorPages"]

_HTTP_CODES = {400: "bad_form", 404: "unknown_page", 405: "method", 413: "too_large"}


class ErrorPages:
    """Pages for what cannot be shown or done."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def known(self, request: Request, fault: TrainshedError) -> Response:
        """An error that we can explain; who is not signed in (any more) is asked to."""
        if isinstance(fault, NotAuthenticated):
            return ask_to_sign_in(request)
        return self._page(request, fault.status, fault.code, fault.message, fault.hint)

    def http(self, request: Request, status: int) -> Response:
        """An address or a request that the console does not know."""
        return self._page(request, status, _HTTP_CODES.get(status, "unknown_page"))

    async def unexpected(self, request: Request, fault_id: str) -> Response:
        """An error of our own. The page asks nothing of the platform: it may be what is broken."""
        return self._site.open_page(
            request,
            "error.html",
            status=500,
            title_code=500,
            code="internal",
            message="",
            hint="",
            fault_id=fault_id,
        )

    def _page(self, request: Request, status: int, code: str, message: str = "", hint: str = "") -> Response:
        values = {"title_code": status, "code": code, "message": message, "hint": hint, "fault_id": ""}
        try:
            visitor = visitor_of(self._site.platform, request)
        except TrainshedError:
            return self._site.open_page(request, "error.html", status=status, **values)
        return self._site.page(request, visitor, "error.html", status=status, **values)
