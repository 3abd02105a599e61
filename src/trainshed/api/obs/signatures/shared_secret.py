"""The older family of signatures: HMAC-SHA1 over a few headers and the resource. AWS V2 and OBS's own are two of it."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.signatures.claim import (
    Claim,
    SignedRequest,
    check_skew,
    is_any,
    mismatch,
    read_epoch,
    read_http_date,
    read_iso_date,
    split_query,
)

__all__ = ["Dialect", "check", "read_header", "read_query"]

_CONTENT = ("content-md5", "content-type")


@dataclass(frozen=True)
class Dialect:
    """Where the members of the family differ."""

    # The first word of the Authorization header.
    word: str
    # The parameter that names the access key in a presigned URL.
    key_parameter: str
    # The beginning of headers that are all signed.
    prefix: str
    # The parameters that belong to the resource.
    resources: frozenset[str]


def read_header(dialect: Dialect, request: SignedRequest) -> Claim:
    """The claim in an `Authorization: <word> <access key>:<signature>` header."""
    text = request.header("authorization").removeprefix(dialect.word).strip()
    access_key, colon, signature = text.partition(":")
    if not colon or not access_key or not signature:
        raise S3Error("InvalidArgument", "Authorization header is invalid -- one and only one ':' expected.")
    date = request.header(f"{dialect.prefix}date") or request.header("date")
    signed_at = read_http_date(date)
    if signed_at is None:
        signed_at = read_iso_date(date)
    if signed_at is None:
        raise S3Error("AccessDenied", "Authentication requires a valid Date header.")
    return Claim(access_key, signature, signed_at)


def read_query(dialect: Dialect, request: SignedRequest) -> Claim:
    """The claim in the query of a presigned URL."""
    fields = {name: value for name, value, _ in split_query(request.query)}
    access_key, signature = fields.get(dialect.key_parameter, ""), fields.get("Signature", "")
    expires_at = read_epoch(fields.get("Expires", ""))
    if not access_key or not signature or expires_at is None:
        raise S3Error(
            "AccessDenied",
            f"Query-string authentication requires the Signature, Expires and {dialect.key_parameter} parameters.",
        )
    # The SDKs round their `+` away in different ways; base64 knows no blanks.
    return Claim(access_key, signature.replace(" ", "+"), 0.0, expires_at)


def check(dialect: Dialect, claim: Claim, request: SignedRequest, secret: str, now: float) -> None:
    """Refuse the request unless it was signed with the secret, in time."""
    if not is_any(claim.signature, (_sign(secret, text) for text in _strings(dialect, claim, request))):
        raise mismatch()
    if claim.expires_at is None:
        check_skew(claim.signed_at, now)
    elif now > claim.expires_at:
        raise S3Error("AccessDenied", "Request has expired.")


def _sign(secret: str, text: str) -> str:
    digest = hmac.digest(secret.encode(), text.encode("utf-8", "surrogateescape"), "sha1")
    return base64.b64encode(digest).decode()


def _strings(dialect: Dialect, claim: Claim, request: SignedRequest) -> Iterator[str]:
    """The strings that may have been signed: one, but for the freedom that clients take."""
    pairs = split_query(request.query)
    headers = {name: _utf8(value) for name, value in request.headers.items()}
    resource = [part for part in pairs if part[0].lower() in dialect.resources]
    moved = [part for part in pairs if part[0].lower().startswith(dialect.prefix)]
    # A header that was moved into a presigned URL is signed as part of the resource (the OBS SDK) or still as
    # a header (botocore). Either way it is signed.
    yield from _join(dialect, claim, request, headers, sorted(resource + moved))
    if claim.expires_at is not None:
        also = {name.lower(): value for name, value, _ in pairs if name.lower() in _CONTENT}
        also.update({name.lower(): value for name, value, _ in moved})
        yield from _join(dialect, claim, request, headers | also, sorted(resource))


def _join(
    dialect: Dialect,
    claim: Claim,
    request: SignedRequest,
    headers: dict[str, str],
    resource: list[tuple[str, str, bool]],
) -> Iterator[str]:
    if claim.expires_at is not None:
        date = str(int(claim.expires_at))
    else:
        date = "" if headers.get(f"{dialect.prefix}date") else headers.get("date", "")
    words = [headers.get(name, "") for name in _CONTENT]
    lines = [f"{name}:{headers[name].strip()}" for name in sorted(headers) if name.startswith(dialect.prefix)]
    # Clients also differ in whether `?acl=` is signed with its `=`.
    for path, keep in product(_paths(request), (True, False)):
        parts = [
            f"{name}={value}" if value or (equals and keep) else name for name, value, equals in resource
        ]
        yield "\n".join(
            [request.method, *words, date, *lines, path + ("?" + "&".join(parts) if parts else "")]
        )


def _utf8(value: str) -> str:
    """Header bytes are UTF-8 to those who sign them."""
    return value.encode("latin-1").decode("utf-8", "surrogateescape")


def _paths(request: SignedRequest) -> list[str]:
    path = f"/{request.host_bucket}{request.path}" if request.host_bucket else request.path
    path = path or "/"
    if path.count("/") == 2 and path.endswith("/"):
        return [path, path[:-1]]
    if path.count("/") == 1 and path != "/":
        return [path, path + "/"]
    return [path]
