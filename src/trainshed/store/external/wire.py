"""Signed requests to the endpoint: AWS Signature Version 4 over connections that are kept open.

Every request here may be repeated without harm, and is: after short waits when the endpoint cannot be reached
or says that it is overloaded, and after longer ones for those who have the patience.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
import random
import ssl
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

from trainshed.model.errors import InvalidInput, TrainshedError, Unavailable
from trainshed.store.external.address import Address, Credentials, read_credentials
from trainshed.store.outage import Patience

__all__ = ["Answer", "Body", "Refused", "Wire", "parse_xml"]

_TIMEOUT = 60.0
_WAITS = (0.1, 0.4, 1.0, 2.0)
# Between tries of those who have the patience.
_LONG_WAIT = 5.0
_BUSY = (429, 500, 502, 503, 504)
_IDLE = 64
_EMPTY_HASH = hashlib.sha256(b"").hexdigest()
_MAX_ERROR = 1 << 16
_wires: weakref.WeakSet[Wire] = weakref.WeakSet()


def _begin_anew_after_fork() -> None:
    for wire in list(_wires):
        wire.forget_connections()


os.register_at_fork(after_in_child=_begin_anew_after_fork)


class Refused(Exception):
    """The endpoint's answer is an error that the caller may know how to take."""

    def __init__(self, status: int, code: str, message: str, *, was_repeated: bool = False) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        # Whether an earlier try may have done what was asked, without its answer reaching us.
        self.was_repeated = was_repeated


@dataclass(frozen=True)
class Answer:
    """What the endpoint answered."""

    status: int
    # Names in lower case.
    headers: Mapping[str, str]
    body: bytes = b""


class Body:
    """The bytes of an answer that are still on their way."""

    def __init__(
        self, wire: Wire, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> None:
        self._wire = wire
        self._connection = connection
        self._response = response
        self.headers = {name.lower(): _text(value) for name, value in response.getheaders()}
        self.status = response.status
        # Whether the request was sent before, over a connection that then turned out to be closed.
        self.was_resent = False

    def readinto(self, buffer: memoryview) -> int:
        """The next bytes; 0 at the end. Raises `ConnectionError` when the connection breaks before it."""
        try:
            count = self._response.readinto(buffer)
        except (OSError, http.client.HTTPException) as error:
            # One kind for all, so that it is told from what the caller's own disk says.
            raise ConnectionError(str(error) or type(error).__name__) from error
        if not count and self._response.length:
            raise ConnectionError("the connection was closed before the end")
        return count

    def close(self) -> None:
        """Give the connection back, if all of the answer was read."""
        if self._response.isclosed():
            self._wire.give_back(self._connection)
        else:
            self._connection.close()

    def __enter__(self) -> Body:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Wire:
    """Connections to one bucket of an endpoint."""

    def __init__(self, address: Address, credentials: Credentials | None = None) -> None:
        self.address = address
        self.patience = Patience()
        self._credentials = credentials
        base = urlsplit(address.base)
        self._is_secure = base.scheme == "https"
        self._host, self._port = base.hostname or "", base.port
        self._netloc = base.netloc
        self._path = base.path or ""
        self._context: ssl.SSLContext | None = None
        self._signing_key = ("", b"")
        self.forget_connections()
        _wires.add(self)

    def forget_connections(self) -> None:
        """After a fork: connections belong to the parent, this process makes its own."""
        # Not closed: that would end the parent's connection in the middle of what it does.
        self._inherited = getattr(self, "_idle", [])
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the connections that are not in use."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def give_back(self, connection: http.client.HTTPConnection) -> None:
        """Keep a connection for the next request."""
        with self._lock:
            if len(self._idle) < _IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def ask(
        self,
        method: str,
        name: str = "",
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | bytearray | memoryview = b"",
    ) -> Answer:
        """Send a request and read its answer. Raises `Refused`, or `Unavailable` where waiting may help."""
        with self.stream(method, name, query, headers, body) as answer:
            try:
                # An answer to HEAD has a length and no bytes.
                data = b"" if method == "HEAD" else answer._response.read()
            except (OSError, http.client.HTTPException) as error:
                raise self._unreachable(error) from error
        return Answer(answer.status, answer.headers, data)

    def stream(
        self,
        method: str,
        name: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | bytearray | memoryview = b"",
    ) -> Body:
        """Send a request and give its answer piece by piece; the caller closes it."""
        path = quote(f"{self._path}/{name}", safe="/-_.~")
        line = "&".join(
            f"{quote(key, safe='-_.~')}={quote(value, safe='-_.~')}"
            for key, value in sorted((query or {}).items())
        )
        waits, since, was_repeated = iter(_WAITS), time.monotonic(), False
        while True:
            try:
                answer = self._exchange(method, path, line, headers or {}, body)
            except (OSError, http.client.HTTPException) as error:
                fault = self._unreachable(error)
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise fault from error
            else:
                if answer.status < 300:
                    self.patience.note_heard()
                    return answer
                was_repeated = was_repeated or answer.was_resent
                refused = self._read_error(answer, method, was_repeated)
                if refused.status not in _BUSY:
                    raise self._explained(refused) or refused
                fault = self._busy(refused)
            was_repeated = True
            wait = next(waits, None)
            if wait is not None:
                time.sleep(wait * random.uniform(0.7, 1.3))
            elif not self.patience.wait(since, _LONG_WAIT * random.uniform(0.7, 1.3), fault.message):
                raise self.patience.mark(fault)

    def _exchange(
        self,
        method: str,
        path: str,
        line: str,
        headers: Mapping[str, str],
        body: bytes | bytearray | memoryview,
    ) -> Body:
        target = f"{path}?{line}" if line else path
        was_resent = False
        while True:
            signed = self._sign(method, path, line, headers, body)
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            was_kept = connection is not None
            connection = connection or self._connect()
            try:
                connection.request(
                    method,
                    target,
                    body=body if len(body) or method in ("PUT", "POST") else None,
                    headers=signed,
                )
                answer = Body(self, connection, connection.getresponse())
                answer.was_resent = was_resent
                return answer
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                # A connection that was kept too long: the endpoint had closed it before it saw the request.
                if not was_kept or not isinstance(
                    error, ConnectionError | http.client.RemoteDisconnected | http.client.CannotSendRequest
                ):
                    raise
                was_resent = True
            except BaseException:
                connection.close()
                raise

    def _connect(self) -> http.client.HTTPConnection:
        if not self._is_secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT)
        if self._context is None:
            self._context = ssl.create_default_context()
        return http.client.HTTPSConnection(self._host, self._port, timeout=_TIMEOUT, context=self._context)

    # --- signing ---

    def _sign(
        self,
        method: str,
        path: str,
        line: str,
        headers: Mapping[str, str],
        body: bytes | bytearray | memoryview,
    ) -> dict[str, str]:
        if self._credentials is None:
            self._credentials = read_credentials(self.address)
        keys = self._credentials
        if not len(body):
            digest = _EMPTY_HASH
        else:
            # Bytes that TLS or a signed MD5 protects already are not hashed once more.
            is_safe = self._is_secure or "content-md5" in headers
            digest = "UNSIGNED-PAYLOAD" if is_safe else hashlib.sha256(body).hexdigest()
        moment = time.gmtime()
        stamp, day = time.strftime("%Y%m%dT%H%M%SZ", moment), time.strftime("%Y%m%d", moment)
        sent = {name.lower(): value for name, value in headers.items()}
        sent |= {"host": self._netloc, "x-amz-date": stamp, "x-amz-content-sha256": digest}
        names = ";".join(sorted(sent))
        lines = "".join(f"{name}:{' '.join(sent[name].split())}\n" for name in sorted(sent))
        scope = f"{day}/{self.address.region}/s3/aws4_request"
        request = "\n".join((method, path, line, lines, names, digest))
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        signature = hmac.new(self._key_of(scope, keys), text.encode(), hashlib.sha256).hexdigest()
        sent["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={keys.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
        return sent

    def _key_of(self, scope: str, keys: Credentials) -> bytes:
        known, key = self._signing_key
        if known != scope:
            key = f"AWS4{keys.secret_key}".encode()
            for part in scope.split("/"):
                key = hmac.new(key, part.encode(), hashlib.sha256).digest()
            self._signing_key = (scope, key)
        return key

    # --- errors ---

    @staticmethod
    def _read_error(answer: Body, method: str, was_repeated: bool) -> Refused:
        code = message = ""
        with answer:
            if method != "HEAD":
                try:
                    root = parse_xml(answer._response.read(_MAX_ERROR))
                    code, message = root.findtext("Code") or "", root.findtext("Message") or ""
                except (OSError, http.client.HTTPException, TrainshedError):
                    pass
        return Refused(answer.status, code, message[:300], was_repeated=was_repeated)

    def _explained(self, refused: Refused) -> TrainshedError | None:
        """The error of a refusal that no caller can do anything about."""
        if refused.code == "NoSuchBucket":
            return Unavailable(
                f"The external store has no bucket '{self.address.bucket}'.",
                hint="Ask an administrator: the bucket of store_url must exist; `trainshed doctor` checks it.",
                code="store_refused",
            )
        if refused.status == 301 or refused.status == 307:
            return Unavailable(
                f"The bucket '{self.address.bucket}' of the external store lies in another region.",
                hint="Ask an administrator to set store_region and store_endpoint to those of the bucket.",
                code="store_refused",
            )
        if refused.status in (401, 403):
            # Read anew at the next request: keys are replaced now and then.
            if self.address.keys:
                self._credentials, self._signing_key = None, ("", b"")
            return Unavailable(
                f"The external store refuses the platform's keys ({refused.code or refused.status}).",
                hint="Ask an administrator to check store_access_key, store_secret_key and their permissions"
                " with `trainshed doctor`.",
                code="store_refused",
            )
        if refused.status == 507 or refused.code in ("QuotaExceeded", "XMinioStorageFull"):
            return Unavailable(
                "The external store is full; nothing was stored.",
                hint="Remove objects that are no longer needed (trainshed obs rm -r) or give it more room.",
                code="disk_full",
            )
        if refused.code in ("KeyTooLongError", "KeyTooLong"):
            return InvalidInput(
                "The key is too long for the external store.",
                hint="Choose a shorter one.",
                code="invalid_key",
            )
        if refused.code == "MetadataTooLarge":
            return InvalidInput(
                "That is more metadata than the external store keeps with an object.",
                hint="Put it into an object of its own.",
                code="metadata_too_large",
            )
        return None

    def _unreachable(self, error: Exception) -> Unavailable:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Unavailable(
            f"The external store at {self._netloc} cannot be reached: {reason}.",
            hint="Try again; if it stays so, ask an administrator to look at the endpoint.",
            code="store_unreachable",
        )

    def _busy(self, refused: Refused) -> Unavailable:
        return Unavailable(
            f"The external store at {self._netloc} cannot answer now ({refused.status} {refused.code}).",
            hint="Try again; if it stays so, ask an administrator to look at the endpoint.",
            code="store_unreachable",
        )


def parse_xml(data: bytes) -> ElementTree.Element:
    """The root of an XML answer, with names that have no namespace."""
    try:
        # Entities have no place in an answer, and those of a hostile endpoint could fill the memory.
        if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
            raise ValueError("a document type")
        root = ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError):
        raise Unavailable(
            "The external store gave an answer that cannot be read.",
            hint="Ask an administrator whether store_endpoint names an S3 endpoint.",
            code="store_unreachable",
        ) from None
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def _text(value: str) -> str:
    """A header as the UTF-8 that most endpoints mean; the library reads bytes as Latin-1."""
    try:
        return value.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return value
