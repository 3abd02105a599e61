"""What surrounds every page: headers that tell the browser what a page may do, and bounded requests."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["CONTENT_POLICY", "PageGuard"]

_log = logging.getLogger("trainshed.console")
# A form of ours is a name, a password and a token.
_BODY_LIMIT = 64 * 1024

# No inline script or style, nothing from elsewhere, no frame around us: text of a job that slipped through as
# markup could still not run.
CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not `no-referrer`: browsers would send our own forms with the origin `null`.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class PageGuard:
    """The outermost layer of the console."""

    def __init__(
        self, app: ASGIApp, on_fault: Callable[[Request, str], Awaitable[Response]], public_url: str = ""
    ) -> None:
        self._app = app
        self._on_fault = on_fault
        self._headers = dict(_HEADERS)
        public = urlsplit(public_url)
        if public.scheme == "https" and public.port in (None, 443):
            # Only for a platform with the usual port: browsers apply it to a host with all of its ports, and
            # other services of this machine may speak plain HTTP.
            self._headers["Strict-Transport-Security"] = "max-age=31536000"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # The router raises what it does not know only inside an application; alone it answers in plain text.
        scope["app"] = self._app
        begun = False
        received = 0

        async def guarded_send(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        async def bounded_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > _BODY_LIMIT:
                raise HTTPException(413)
            return message

        try:
            await self._app(scope, bounded_receive, guarded_send)
        except Exception:
            fault_id = secrets.token_hex(4)
            _log.exception("page failed, id %s: %s %s", fault_id, scope["method"], scope["path"])
            if begun:
                raise
            response = await self._on_fault(Request(scope), fault_id)
            await response(scope, receive, guarded_send)
