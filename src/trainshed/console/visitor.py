"""Who opens a page: the session behind the cookie, and the language of choice."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from trainshed.console.language import LANGUAGE_COOKIE, choose_language
from trainshed.model.errors import NotAllowed, NotAuthenticated
from trainshed.model.settings import Settings
from trainshed.services.identity import Caller
from trainshed.services.platform import Platform
from trainshed.services.sessions import Session, authenticate_session, check_csrf

__all__ = [
    "SESSION_COOKIE",
    "Visitor",
    "ask_to_sign_in",
    "check_origin",
    "forget_session",
    "language_of",
    "local_path",
    "set_session",
    "visitor_of",
]

# The API accepts the same cookie: the pages' scripts read logs and metrics from it.
SESSION_COOKIE = "trainshed_session"


@dataclass(frozen=True)
class Visitor:
    """Someone who is signed in."""

    session: Session
    cookie: str
    language: str

    @property
    def caller(self) -> Caller:
        """Whose rights count."""
        return self.session.caller


def language_of(request: Request) -> str:
    """The language in which to answer a request."""
    return choose_language(
        request.query_params.get("lang", ""),
        request.cookies.get(LANGUAGE_COOKIE, ""),
        request.headers.get("accept-language", ""),
    )


def visitor_of(platform: Platform, request: Request, form: FormData | None = None) -> Visitor:
    """The visitor of a page. A form must carry the token of the session that it was made for."""
    cookie = request.cookies.get(SESSION_COOKIE, "")
    if not cookie:
        raise NotAuthenticated("Nobody is signed in.", hint="Sign in.", code="no_cookie")
    session = authenticate_session(platform, cookie)
    if form is not None:
        check_csrf(session, str(form.get("csrf", "")))
    return Visitor(session, cookie, language_of(request))


def check_origin(settings: Settings, request: Request) -> None:
    """Refuse a form from another site. (The sign-in form comes before any session, so it has no token.)"""
    origin = request.headers.get("origin", "")
    if request.headers.get("sec-fetch-site", "") == "same-origin":
        return
    hosts = {request.headers.get("host", ""), urlsplit(settings.public_url).netloc} - {""}
    if origin and urlsplit(origin).netloc in hosts:
        return
    raise NotAllowed("The form came from another site and was refused.", code="cross_site")


def set_session(
    settings: Settings, request: Request, response: Response, cookie: str, seconds: float
) -> None:
    """Let the browser keep the session: out of reach of scripts, and not sent along by other sites' forms."""
    secure = request.url.scheme == "https" or settings.public_url.startswith("https://")
    response.set_cookie(
        SESSION_COOKIE, cookie, max_age=int(seconds), path="/", secure=secure, httponly=True, samesite="lax"
    )


def forget_session(response: Response) -> None:
    """Let the browser forget the session."""
    response.delete_cookie(SESSION_COOKIE, path="/", httponly=True, samesite="lax")


def ask_to_sign_in(request: Request) -> Response:
    """Lead to the sign-in page, and from there back to where the visitor wanted to go."""
    expired = bool(request.cookies.get(SESSION_COOKIE))
    is_part = request.headers.get("hx-request", "") == "true"
    wanted = request.headers.get("hx-current-url", "") if is_part else str(request.url)
    parts = urlsplit(wanted)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    # A form that was sent without a session cannot be sent again by an address.
    usable = (is_part or request.method == "GET") and local_path(path) not in ("/", "/jobs")
    query = "&".join((["expired=1"] if expired else []) + ([f"next={quote(path)}"] if usable else []))
    target = "/login" + (f"?{query}" if query else "")
    response: Response
    if is_part:
        response = Response(status_code=401, headers={"HX-Redirect": target})
    else:
        response = RedirectResponse(target, status_code=303)
    if expired:
        forget_session(response)
    return response


def local_path(path: str) -> str:
    """The path if it leads to a page of ours, else the list of jobs: a link must not carry people elsewhere."""
    fine = path.startswith("/") and not path.startswith(("//", "/\\", "/api/", "/login", "/logout"))
    return path if fine and path.isprintable() and len(path) <= 2000 and "\\" not in path else "/jobs"
