"""The few pages that the server of tools shows by itself."""

from __future__ import annotations

from html import escape

from starlette.responses import HTMLResponse

__all__ = ["failed_page", "refused_page", "starting_page"]

_STAGES = {
    "installing": "TensorBoard is being installed. This happens once and takes a minute.",
    "starting": "TensorBoard is starting.",
}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def starting_page(stage: str) -> HTMLResponse:
    """Shown until the tool answers; it asks again by itself."""
    words = _STAGES.get(stage, _STAGES["starting"])
    return _page(503, words, "The page appears by itself.", {"Retry-After": "2"}, refresh=True)


def failed_page(message: str) -> HTMLResponse:
    """Shown when the tool could not be started, or was stopped."""
    return _page(502, "TensorBoard does not run.", message or "Nobody knows why.")


def refused_page(status: int, message: str) -> HTMLResponse:
    """Shown to whoever may not see a tool."""
    return _page(status, "This tool is not shown.", message)


def _page(
    status: int, title: str, words: str, headers: dict[str, str] | None = None, *, refresh: bool = False
) -> HTMLResponse:
    again = '<meta http-equiv="refresh" content="2">' if refresh else ""
    body = (
        f'<!doctype html><html lang="en"><meta charset="utf-8">{again}<title>{escape(title)}</title>'
        "<style>body{font:16px/1.5 system-ui,sans-serif;margin:15vh auto;max-width:32rem;padding:0 1rem;"
        "color:#1d2433;background:#fff}@media(prefers-color-scheme:dark){body{color:#e6e9ef;background:#14171f}}"
        f"</style><h1>{escape(title)}</h1><p>{escape(words)}</p></html>"
    )
    return HTMLResponse(body, status, {**_HEADERS, **(headers or {})})
