"""What the addresses of the native protocol share: the caller, parameters, bodies, and how an object is told."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote

from trainshed.api.obs.exchange import Exchange
from trainshed.model.errors import InvalidInput, TrainshedError
from trainshed.services.attempt_tokens import authenticate_bearer
from trainshed.services.identity import Caller
from trainshed.services.platform import Platform
from trainshed.store.object_store import Condition, ObjectInfo

__all__ = [
    "META",
    "MethodNotAllowed",
    "NativeVisit",
    "object_json",
    "read_condition",
    "read_content_md5",
    "read_metadata",
    "receive_into",
    "required",
    "unknown_method",
]

T = TypeVar("T")

META = "x-trainshed-meta-"


class MethodNotAllowed(TrainshedError):
    """The address exists, but does not answer to this method."""

    status = 405
    code = "method_not_allowed"


class NativeVisit:
    """A request with its token. Who the caller is, and what they may, is asked in the thread that does the work."""

    def __init__(self, platform: Platform, exchange: Exchange) -> None:
        self.platform = platform
        self.store = platform.store
        self.exchange = exchange
        self._token = exchange.bearer()

    async def do(self, work: Callable[[Caller], T]) -> T:
        """Run work that needs the caller, in one thread and one go."""
        return await self.exchange.at_desk(lambda: work(authenticate_bearer(self.platform, self._token)))


class _Taker(Protocol):
    def write(self, data: bytes) -> None: ...

    def abort(self) -> None: ...


async def receive_into(exchange: Exchange, target: _Taker, commit: Callable[[], T]) -> T:
    """Put the body of a request into an object or a part; returns what `commit` made of it."""

    def finish(last: bytes) -> T:
        target.write(last)
        return commit()

    return await exchange.hand_on(target.write, finish, target.abort)


def read_metadata(headers: Mapping[str, str]) -> dict[str, str]:
    """The metadata that the headers of a request carry."""
    return {
        name.removeprefix(META): unquote(value) for name, value in headers.items() if name.startswith(META)
    }


def object_json(info: ObjectInfo) -> dict[str, Any]:
    """An object as it is told."""
    return {
        "key": info.key,
        "size": info.size,
        "etag": info.etag,
        "modified_at": info.modified_at,
        "content_type": info.content_type,
        "metadata": info.metadata,
    }


def read_condition(headers: Mapping[str, str]) -> Condition | None:
    """What must hold when the object is written: `If-Match` and `If-None-Match`."""
    wanted = headers.get("if-match", "").strip('" ')
    unwanted = headers.get("if-none-match", "").strip('" ')
    return Condition(wanted, unwanted) if wanted or unwanted else None


def required(query: Mapping[str, str], name: str) -> str:
    """A parameter that must be there."""
    if not query.get(name):
        raise InvalidInput(f"The parameter '{name}' is missing.", where=name)
    return query[name]


def read_content_md5(text: str) -> str:
    """The MD5 of a `Content-MD5` header in hexadecimal, or nothing without one."""
    if not text:
        return ""
    try:
        digest = base64.b64decode(text, validate=True)
    except binascii.Error:
        digest = b""
    if len(digest) != 16:
        raise InvalidInput("The Content-MD5 cannot be read.", hint="Send the 16 bytes in base64.")
    return digest.hex()


def unknown_method(method: str) -> MethodNotAllowed:
    """The error for a method that an address does not answer to."""
    return MethodNotAllowed(f"{method} does nothing here.", hint="docs/storage.md lists the addresses.")
