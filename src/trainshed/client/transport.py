"""Requests to the platform: one place for tokens, timeouts and errors."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from trainshed import __version__
from trainshed.client.trust import explain_tls, trust_for
from trainshed.model.errors import NotAuthenticated, TrainshedError, Unavailable, error_from_dict

if TYPE_CHECKING:
    import httpx

__all__ = ["Transport"]

_TIMEOUT_SECONDS = 60.0
# Streams send a heartbeat every 15 s: silence for longer than this means that the connection is dead.
STREAM_SILENCE_SECONDS = 45.0


class Transport:
    """A connection to the platform's API that raises the platform's own errors. Safe from many threads."""

    def __init__(self, url: str, token: str, ca: str = "") -> None:
        self.url = url.rstrip("/")
        self.ca = ca
        self.token = token.strip()
        if not self.token.isascii() or not self.token.isprintable() or " " in self.token:
            # Told here, without the text: an HTTP library would quote it in its message.
            raise NotAuthenticated("The token holds characters that no token has.", hint="Copy it again.")
        self._lock = threading.Lock()
        self._http: httpx.Client | None = None

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            if self._http is not None:
                self._http.close()
                self._http = None

    def get(self, path: str, **query: Any) -> Any:
        """The answer to a GET. One that was cut off is asked once more: a GET changes nothing."""
        try:
            return self.call("GET", path, query=query)
        except Unavailable as fault:
            if fault.code != "connection_lost":
                raise
            return self.call("GET", path, query=query)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        content: Iterable[bytes] | None = None,
        content_type: str = "application/x-tar",
    ) -> Any:
        """The JSON answer to a request."""
        import httpx

        options: dict[str, Any] = {"params": _clean(query)}
        if content is not None:
            options |= {"content": content, "headers": {"Content-Type": content_type}}
            # The server may have a lot to store before it answers.
            options["timeout"] = httpx.Timeout(_TIMEOUT_SECONDS, read=600.0)
        elif body is not None:
            options["json"] = body
        try:
            response = self._client().request(method, path, **options)
        except httpx.HTTPError as fault:
            raise self._unreachable(fault) from None
        if response.is_error:
            raise _read_error(response.status_code, response.content)
        if response.is_redirect:
            raise Unavailable(
                f"{self.url} sends its visitors to {response.headers['location'][:200]}.",
                hint="If that is your platform, sign in there: `trainshed login URL`.",
                code="moved",
            )
        if not response.content:
            return None
        return _read_json(response.content, self.url)

    @contextmanager
    def stream(
        self, path: str, *, headers: Mapping[str, str] | None = None, query: Mapping[str, Any] | None = None
    ) -> Iterator[Iterator[bytes]]:
        """The bytes of a long answer as they come. A connection that breaks raises Unavailable."""
        import httpx

        timeout = httpx.Timeout(_TIMEOUT_SECONDS, read=STREAM_SILENCE_SECONDS)
        try:
            with self._client().stream(
                "GET", path, params=_clean(query), headers=dict(headers or {}), timeout=timeout
            ) as response:
                if response.is_error:
                    raise _read_error(response.status_code, response.read())
                yield response.iter_raw()
        except httpx.HTTPError as fault:
            raise self._unreachable(fault) from None

    def _client(self) -> httpx.Client:
        import httpx

        with self._lock:
            if self._http is None:
                credential = {"Authorization": f"Bearer {self.token}"} if self.token else {}
                self._http = httpx.Client(
                    base_url=self.url,
                    headers=credential
                    | {
                        "User-Agent": f"trainshed/{__version__}",
                        # Nothing may sit between a follower and the bytes of a log.
                        "Accept-Encoding": "identity",
                    },
                    timeout=_TIMEOUT_SECONDS,
                    verify=trust_for(self.url, self.ca),
                    # A proxy of the environment is for the world outside; it cannot reach this machine.
                    trust_env=not _is_loopback(self.url),
                    limits=httpx.Limits(max_connections=None, max_keepalive_connections=8),
                    # The token belongs to this address only.
                    follow_redirects=False,
                )
            return self._http

    def _unreachable(self, fault: Exception) -> Unavailable:
        import httpx

        if explained := explain_tls(self.url, fault):
            return explained
        if isinstance(fault, httpx.ConnectError | httpx.ConnectTimeout):
            return Unavailable(
                f"The platform at {self.url} does not answer.",
                hint="Start it with `trainshed up`, or look at it with `trainshed status` on its machine.",
                code="no_connection",
                where=self.url,
            )
        if isinstance(fault, httpx.TimeoutException):
            return Unavailable(
                f"The platform at {self.url} took too long to answer.",
                hint="Try again; `trainshed status` on its machine shows how it is.",
                code="timeout",
                where=self.url,
            )
        return Unavailable(
            f"The connection to {self.url} broke: {str(fault) or type(fault).__name__}.",
            hint="Try again; it may have been restarted.",
            code="connection_lost",
            where=self.url,
        )


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _clean(query: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (query or {}).items() if value is not None and value != ""}


def _read_error(status: int, content: bytes) -> TrainshedError:
    try:
        data = json.loads(content)["error"]
        return error_from_dict(status, {name: str(value) for name, value in data.items()})
    except (ValueError, KeyError, TypeError, AttributeError):
        return error_from_dict(
            status,
            {
                "message": f"The server answered with status {status} and no explanation.",
                "hint": "Check that the URL is that of a Trainshed platform.",
                "code": "bad_answer",
            },
        )


def _read_json(content: bytes, url: str) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        raise Unavailable(
            f"What answers at {url} is not a Trainshed platform.", hint="Check the URL.", code="bad_answer"
        ) from None
