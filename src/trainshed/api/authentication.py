"""Who sends a request: a bearer token, or the session cookie of someone who signed in to the console."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from starlette.requests import HTTPConnection

from trainshed.model.errors import NotAllowed, NotAuthenticated
from trainshed.services.identity import Caller, authenticate_token
from trainshed.services.platform import Platform
from trainshed.services.sessions import authenticate_session

__all__ = ["SESSION_COOKIE", "CallerOf", "PlatformOf", "authenticate", "current_caller", "current_platform"]

SESSION_COOKIE = "trainshed_session"
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def authenticate(platform: Platform, connection: HTTPConnection, method: str) -> Caller:
    """The caller of a request; a request without a valid credential is refused."""
    header = connection.headers.get("authorization", "")
    if header:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise NotAuthenticated(
                "The Authorization header is not 'Bearer TOKEN'.",
                hint="`trainshed token create` makes a token.",
            )
        return authenticate_token(platform, token.strip())
    session = connection.cookies.get(SESSION_COOKIE, "")
    if not session:
        raise NotAuthenticated(
            "This needs a token or a sign-in.",
            hint="Send the header 'Authorization: Bearer TOKEN', or run `trainshed login URL`.",
            code="no_credential",
        )
    if method not in _SAFE_METHODS:
        _require_same_origin(platform, connection)
    return authenticate_session(platform, session).caller


def _require_same_origin(platform: Platform, connection: HTTPConnection) -> None:
    """A browser sends the cookie along with what other sites ask of it: changes must come from our own pages."""
    origin = connection.headers.get("origin", "")
    if connection.headers.get("sec-fetch-site", "") == "same-origin" and not origin:
        return
    # Behind a proxy that changes the Host header, the address that the administrator set is ours as well.
    own = {connection.headers.get("host", ""), urlsplit(platform.settings.public_url).netloc} - {""}
    if origin and urlsplit(origin).netloc in own:
        return
    raise NotAllowed(
        "The request comes from another site.",
        hint="Use a token, or the console's own pages.",
        code="cross_site",
    )


async def current_platform(request: Request) -> Platform:
    """The platform that this application serves. (Not in a thread of its own: the way there and back costs more.)"""
    platform: Platform = request.app.state.platform
    return platform


def current_caller(request: Request, platform: PlatformOf) -> Caller:
    """The caller of the request under way."""
    return authenticate(platform, request, request.method)


PlatformOf = Annotated[Platform, Depends(current_platform)]
CallerOf = Annotated[Caller, Depends(current_caller)]
