"""Signing in and out, and acting in another workspace."""

from __future__ import annotations

from collections.abc import Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from trainshed.console.site import Site
from trainshed.console.visitor import (
    SESSION_COOKIE,
    check_origin,
    forget_session,
    local_path,
    set_session,
    visitor_of,
)
from trainshed.model.errors import NotAuthenticated, TrainshedError
from trainshed.services.sessions import (
    SESSION_SECONDS,
    NewSession,
    sign_in_with_link,
    sign_in_with_password,
    sign_out,
    switch_workspace,
)

__all__ = ["SignInPages"]


class SignInPages:
    """The doors of the console."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def show(self, request: Request) -> Response:
        """The sign-in form. A login link only fills it in: programs that preview links must not use one up."""
        code = request.query_params.get("code", "")[:200]
        wanted = local_path(request.query_params.get("next", ""))
        if not code:
            try:
                visitor_of(self._site.platform, request)
                return RedirectResponse(wanted, status_code=303)
            except NotAuthenticated:
                pass
        done = "expired" if request.query_params.get("expired") else request.query_params.get("done", "")
        return self._form(request, code=code, wanted=wanted, notice=done)

    async def sign_in(self, request: Request) -> Response:
        """Open a session with the code of a login link, or with a name and a password."""
        form = await request.form(max_files=0, max_fields=10)
        code, name = str(form.get("code", "")), str(form.get("name", "")).strip()
        password, wanted = str(form.get("password", "")), local_path(str(form.get("next", "")))

        def open_session() -> NewSession:
            if code:
                return sign_in_with_link(self._site.platform, code[:200])
            return sign_in_with_password(self._site.platform, name[:64], password)

        def attempt() -> Response:
            check_origin(self._site.platform.settings, request)
            try:
                session = self._counted(request, open_session)
            except NotAuthenticated as fault:
                return self._form(request, status=401, wanted=wanted, name=name[:64], fault=fault)
            response = RedirectResponse(wanted, status_code=303)
            set_session(self._site.platform.settings, request, response, session.cookie, SESSION_SECONDS)
            return response

        return await run_in_threadpool(attempt)

    async def sign_out(self, request: Request) -> Response:
        """End the session."""
        form = await request.form(max_files=0, max_fields=10)

        def end() -> Response:
            visitor = visitor_of(self._site.platform, request, form)
            sign_out(self._site.platform, visitor.cookie)
            response = RedirectResponse("/login?done=sign-out", status_code=303)
            forget_session(response)
            return response

        return await run_in_threadpool(end)

    async def switch(self, request: Request) -> Response:
        """Act in another workspace from now on."""
        form = await request.form(max_files=0, max_fields=10)

        def change() -> Response:
            visitor = visitor_of(self._site.platform, request, form)
            switch_workspace(self._site.platform, visitor.cookie, str(form.get("workspace", "")))
            return RedirectResponse("/jobs", status_code=303)

        return await run_in_threadpool(change)

    def _counted(self, request: Request, open_session: Callable[[], NewSession]) -> NewSession:
        address = request.client.host if request.client else ""
        now = self._site.platform.clock()
        self._site.limit.check(address, now)
        try:
            return open_session()
        except NotAuthenticated:
            self._site.limit.note_failure(address, now)
            raise

    def _form(
        self,
        request: Request,
        *,
        status: int = 200,
        code: str = "",
        wanted: str = "/jobs",
        name: str = "",
        notice: str = "",
        fault: TrainshedError | None = None,
    ) -> Response:
        response = self._site.open_page(
            request,
            "sign_in.html",
            status=status,
            code=code,
            wanted=wanted,
            name=name,
            notice=notice,
            fault=fault,
        )
        if fault is None and not code and request.cookies.get(SESSION_COOKIE):
            forget_session(response)
        return response
