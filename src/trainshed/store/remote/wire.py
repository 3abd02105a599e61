"""Requests to the platform over HTTP with nothing but the standard library."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from trainshed.model.errors import InvalidInput, TrainshedError, Unavailable, error_from_dict
from trainshed.store.outage import Patience
from trainshed.store.remote.http_connection import HttpAnswer, HttpConnection

if TYPE_CHECKING:
    import ssl

__all__ = ["Answer", "PlatformWire"]

_SECONDS = 60.0
_MOST_IDLE = 16
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 15.0
# Somebody between us and the platform says that it is away, or it restarts itself.
_PASSING = frozenset({500, 502, 503, 504, 429})


class Answer:
    """An answer whose body is still on its way. Close it, or read it to its end."""

    def __init__(
        self,
        response: HttpAnswer,
        connection: HttpConnection,
        give_back: Callable[[HttpConnection], None],
    ) -> None:
        self._response = response
        self._connection: HttpConnection | None = connection
        self._give_back = give_back
        self.status = response.status
        self.headers = response.headers

    def readinto(self, view: memoryview) -> int:
        """The next bytes; 0 at the end. A body that breaks off is a `ConnectionError`."""
        try:
            return self._response.readinto(view)
        except OSError as error:
            self.close()
            raise ConnectionError(str(error)) from error

    def read(self) -> bytes:
        """All that is left of the body."""
        try:
            return self._response.read()
        except OSError as error:
            self.close()
            raise ConnectionError(str(error)) from error

    def close(self) -> None:
        """Let go. A connection with bytes left on it is of no more use."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._response.is_over and self._response.can_go_on:
            self._give_back(connection)
        else:
            connection.close()

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PlatformWire:
    """Connections to one address, used by many threads. What may be repeated waits for a platform that is away."""

    def __init__(self, url: str, token: str, *, ca: str = "", patience: Patience | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput(f"'{url[:120]}' is no address.", hint="Write it as http://host:port.")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self.patience = patience or Patience()
        self._host, self._port = parts.hostname, parts.port
        self._base = parts.path.rstrip("/")
        self._token = token
        self._trust = _trust(ca) if parts.scheme == "https" else None
        self._lock = threading.Lock()
        self._idle: list[HttpConnection] = []

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | bytearray | memoryview | Callable[[], bytes] = b"",
    ) -> Any:
        """The JSON answer to a request that may be repeated; a body that tells the time is made anew for each try."""
        began, wait = time.monotonic(), _FIRST_WAIT
        while True:
            try:
                data = body() if callable(body) else body
                with self.send(method, path, query, headers=headers, body=data) as answer:
                    data = answer.read()
                self.patience.note_heard()
                return json.loads(data) if data else None
            except (Unavailable, ConnectionError, ValueError) as error:
                fault = error if isinstance(error, Unavailable) else self._broken(str(error))
            if fault.code not in ("store_unreachable", "store_busy"):
                raise fault
            if not self.patience.wait(began, wait, fault.message):
                raise self.patience.mark(fault)
            wait = min(_LONGEST_WAIT, wait * 2)

    def stream(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The answer to a request without a body, repeated until it begins to come."""
        began, wait = time.monotonic(), _FIRST_WAIT
        while True:
            try:
                answer = self.send(method, path, query, headers=headers)
                self.patience.note_heard()
                return answer
            except Unavailable as fault:
                if fault.code not in ("store_unreachable", "store_busy"):
                    raise
                if not self.patience.wait(began, wait, fault.message):
                    self.patience.mark(fault)
                    raise
            wait = min(_LONGEST_WAIT, wait * 2)

    def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | bytearray | memoryview = b"",
    ) -> Answer:
        """Send a request once. What the platform refuses is raised as the error that it is there."""
        target = f"{self._base}/{path}" + (f"?{urlencode(query)}" if query else "")
        sent = {
            "Authorization": f"Bearer {self._token}",
            "Accept-Encoding": "identity",
            "Content-Length": str(len(body)),
            **(headers or {}),
        }
        while True:
            connection, had_been_used = self._take_connection()
            try:
                answer = Answer(connection.request(method, target, sent, body), connection, self._give_back)
            except OSError as error:
                connection.close()
                self._check_trust(error)
                # The other side closes connections that were idle for long: that is no fault.
                if had_been_used:
                    continue
                raise self._broken(str(error) or type(error).__name__) from error
            if answer.status < 400:
                return answer
            raise self._read_error(answer)

    def close(self) -> None:
        """Close the connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take_connection(self) -> tuple[HttpConnection, bool]:
        """A connection, and whether it has been used before."""
        with self._lock:
            if self._idle:
                return self._idle.pop(), True
        return HttpConnection(self._host, self._port, timeout=_SECONDS, trust=self._trust), False

    def _check_trust(self, fault: OSError) -> None:
        """Say so where it is the certificate that is not trusted: to wait would be in vain."""
        if self._trust is None:
            return
        import ssl

        if isinstance(fault, ssl.SSLCertVerificationError):
            raise Unavailable(
                f"The certificate of {self.url} is not trusted: {fault.verify_message}.",
                hint="Does the certificate hold this name, and does the node know its CA?",
                code="tls",
            ) from fault

    def _give_back(self, connection: HttpConnection) -> None:
        with self._lock:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _read_error(self, answer: Answer) -> TrainshedError:
        try:
            with answer:
                body = answer.read()
        except ConnectionError as error:
            return self._broken(str(error))
        if answer.status == 404 and not body:
            return error_from_dict(404, {"code": "no_such_key", "message": "There is no such object."})
        try:
            data = {name: str(value) for name, value in json.loads(body)["error"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            data = {}
        if answer.status in _PASSING and data.get("code", "") in ("", "unavailable", "internal_error"):
            return self._broken(data.get("message") or f"status {answer.status}")
        return error_from_dict(answer.status, data)

    def _broken(self, why: str) -> Unavailable:
        return Unavailable(
            f"The platform at {self.url} cannot be reached: {why}.",
            hint="Is it up, and can this machine reach it?",
            code="store_unreachable",
        )


def _trust(ca: str) -> ssl.SSLContext:
    """The machine's CAs, and the platform's own one."""
    import ssl

    context = ssl.create_default_context()
    if ca:
        context.load_verify_locations(ca)
    return context
