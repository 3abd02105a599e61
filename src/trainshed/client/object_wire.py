"""Requests to the object store: retries after broken connections, and the server's errors as our own."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

from trainshed.client.trust import explain_tls, trust_for
from trainshed.model.errors import TrainshedError, Unavailable, error_from_dict

if TYPE_CHECKING:
    import httpx

__all__ = ["TRIES", "ObjectWire", "may_retry", "retry_broken", "wait_before_retry"]

T = TypeVar("T")

TRIES = 8
_LONGEST_WAIT = 5.0
# How often a request is sent again after an error with this code. A wrong address should be told soon, but a
# store that answered before is being restarted.
_RETRIES = {"connection_lost": TRIES - 1, "store_busy": TRIES - 1, "no_connection": 2}


class ObjectWire:
    """Connections to the object store, shared by threads."""

    def __init__(self, url: str, token: str, timeout: float, ca: str = "") -> None:
        self.url = url.rstrip("/")
        self._ca = ca
        self._token = token
        self._timeout = timeout
        self._lock = threading.Lock()
        self._http: httpx.Client | None = None
        self._has_answered = False

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            if self._http is not None:
                self._http.close()
                self._http = None

    @contextmanager
    def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        content: Iterator[bytes] | None = None,
    ) -> Iterator[httpx.Response]:
        """Send a request once; the answer's body is still on the wire when the block begins."""
        import httpx

        # Encoded here: what reaches the server must be exactly the key, dots, slashes, plus signs and all.
        url = f"/_/v1/{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            with self._client().stream(method, url, headers=dict(headers or {}), content=content) as response:
                self._has_answered = True
                if response.is_error:
                    raise _read_error(response.status_code, response.read())
                yield response
        except httpx.ConnectError as error:
            if explained := explain_tls(self.url, error):
                raise explained from None
            raise Unavailable(
                f"The object store at {self.url} does not answer.",
                hint="Start the platform with `trainshed up`, or look at it with `trainshed status`.",
                code="connection_lost" if self._has_answered else "no_connection",
                where=self.url,
            ) from error
        except httpx.HTTPError as error:
            if explained := explain_tls(self.url, error):
                raise explained from None
            raise Unavailable(
                f"The connection to the object store broke: {str(error) or type(error).__name__}.",
                hint="Try again.",
                code="connection_lost",
                where=self.url,
            ) from error

    def call(self, method: str, path: str, query: Mapping[str, str] | None = None) -> Any:
        """The JSON answer to a request that may be repeated."""

        def send() -> Any:
            with self.send(method, path, query) as response:
                body = response.read()
                return json.loads(body) if body else None

        return retry_broken(send)

    def _client(self) -> httpx.Client:
        import httpx

        with self._lock:
            if self._http is None:
                self._http = httpx.Client(
                    base_url=self.url,
                    headers={"Authorization": f"Bearer {self._token}", "Accept-Encoding": "identity"},
                    timeout=self._timeout,
                    verify=trust_for(self.url, self._ca),
                    limits=httpx.Limits(max_connections=64, max_keepalive_connections=32),
                    follow_redirects=False,
                )
            return self._http


def may_retry(error: Exception, attempt: int) -> bool:
    """Whether the same request may succeed in a moment, after so many failures before this one."""
    return isinstance(error, Unavailable) and attempt < _RETRIES.get(error.code, 0)


def wait_before_retry(attempt: int) -> None:
    """Longer and longer, and never in step with others: 0.2 s, 0.4 s, 0.8 s..."""
    time.sleep(min(_LONGEST_WAIT, 0.2 * 2**attempt) * (0.75 + random.random() / 2))


def retry_broken(send: Callable[[], T]) -> T:
    """Send, and send again when the connection broke or nobody listened for a moment."""
    attempt = 0
    while True:
        try:
            return send()
        except Unavailable as error:
            if not may_retry(error, attempt):
                raise
        wait_before_retry(attempt)
        attempt += 1


def _read_error(status: int, body: bytes) -> TrainshedError:
    try:
        data = json.loads(body)["error"]
        return error_from_dict(status, {name: str(value) for name, value in data.items()})
    except (ValueError, KeyError, TypeError, AttributeError):
        return error_from_dict(status, {"hint": "Is this the address of the object store?"})
