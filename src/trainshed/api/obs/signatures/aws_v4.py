"""AWS Signature Version 4, in the `Authorization` header and in the query of a presigned URL.

The OBS SDK's own way with it is accepted too: it sends only an HTTP `Date`, and its region is called `region`.
Any region is as good as another here, as long as the signature was made with it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes

from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.signatures.claim import (
    Claim,
    SignedRequest,
    check_skew,
    is_any,
    mismatch,
    read_http_date,
    read_iso_date,
    split_query,
)

__all__ = ["ALGORITHM", "Seed", "V4Claim", "check", "read_header", "read_query", "signing_key"]

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED = "UNSIGNED-PAYLOAD"
_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
_LONGEST = 7 * 24 * 3600
_SAFE = "-_.~"
_SPACES = re.compile(r" +")
# A path that is the same with and without percent signs.
_PLAIN = re.compile(r"[A-Za-z0-9/._~-]*")
# Headers with these beginnings change what a request does, so that each must be signed.
_GUARDED = ("x-amz-", "x-obs-")


@dataclass(frozen=True)
class V4Claim(Claim):
    """A claim with all that its signature was made over."""

    timestamp: str = ""
    scope: str = ""
    signed_headers: tuple[str, ...] = ()
    payload_hash: str = UNSIGNED
    is_query: bool = False


@dataclass(frozen=True)
class Seed:
    """What the signatures of a body's chunks continue from."""

    key: bytes
    timestamp: str
    scope: str
    signature: str


def read_header(request: SignedRequest) -> V4Claim:
    """The claim in an `Authorization: AWS4-HMAC-SHA256 Credential=…, SignedHeaders=…, Signature=…` header."""
    fields: dict[str, str] = {}
    for part in request.header("authorization").removeprefix(ALGORITHM).split(","):
        name, _, value = part.strip().partition("=")
        fields[name] = value
    if not all(fields.get(name) for name in ("Credential", "SignedHeaders", "Signature")):
        raise _malformed("The authorization header needs Credential, SignedHeaders and Signature.")
    access_key, scope = _split_credential(fields["Credential"])
    timestamp = request.header("x-amz-date") or request.header("x-obs-date") or request.header("date")
    signed_at = read_iso_date(timestamp)
    if signed_at is None:
        signed_at = read_http_date(timestamp)
        if signed_at is None:
            raise S3Error("AccessDenied", "AWS authentication requires a valid Date or x-amz-date header.")
        timestamp = _iso(signed_at)
    if scope.partition("/")[0] != timestamp[:8]:
        raise _malformed("The date in the credential is not that of the request.")
    payload_hash = request.header("x-amz-content-sha256") or request.header("x-obs-content-sha256")
    if not payload_hash:
        raise S3Error("InvalidRequest", "Missing required header for this request: x-amz-content-sha256.")
    return V4Claim(
        access_key=access_key,
        signature=fields["Signature"],
        signed_at=signed_at,
        timestamp=timestamp,
        scope=scope,
        signed_headers=_split_names(fields["SignedHeaders"]),
        payload_hash=payload_hash,
    )


def read_query(request: SignedRequest) -> V4Claim:
    """The claim in the query of a presigned URL."""
    fields = {name: value for name, value, _ in split_query(request.query)}
    if fields.get("X-Amz-Algorithm") != ALGORITHM:
        raise _malformed_query("X-Amz-Algorithm only supports AWS4-HMAC-SHA256.")
    for name in ("X-Amz-Credential", "X-Amz-Signature", "X-Amz-Date", "X-Amz-SignedHeaders", "X-Amz-Expires"):
        if not fields.get(name):
            raise _malformed_query(f"The query parameter {name} is missing.")
    signed_at = read_iso_date(fields["X-Amz-Date"])
    if signed_at is None:
        raise _malformed_query("X-Amz-Date must be in the form yyyyMMdd'T'HHmmss'Z'.")
    lifetime = fields["X-Amz-Expires"]
    if not (lifetime.isascii() and lifetime.isdigit() and len(lifetime) < 9):
        raise _malformed_query("X-Amz-Expires should be a number.")
    if int(lifetime) > _LONGEST:
        raise _malformed_query(
            "X-Amz-Expires must be less than a week (in seconds); it may be 604800 at most."
        )
    access_key, scope = _split_credential(fields["X-Amz-Credential"])
    if scope.partition("/")[0] != fields["X-Amz-Date"][:8]:
        raise _malformed_query("The date in the credential is not that of the request.")
    payload_hash = fields.get("X-Amz-Content-Sha256") or request.header("x-amz-content-sha256") or UNSIGNED
    return V4Claim(
        access_key=access_key,
        signature=fields["X-Amz-Signature"],
        signed_at=signed_at,
        expires_at=signed_at + int(lifetime),
        timestamp=fields["X-Amz-Date"],
        scope=scope,
        signed_headers=_split_names(fields["X-Amz-SignedHeaders"]),
        payload_hash=payload_hash,
        is_query=True,
    )


def check(claim: V4Claim, request: SignedRequest, secret: str, now: float) -> Seed:
    """Refuse the request unless it was signed with the secret, in time and with all that matters."""
    key = signing_key(secret, claim.scope)
    expected = (_signature(claim, canonical, key) for canonical in _canonical_requests(claim, request))
    if not is_any(claim.signature, expected):
        raise mismatch()
    if claim.expires_at is None:
        check_skew(claim.signed_at, now)
    elif now > claim.expires_at:
        raise S3Error("AccessDenied", "Request has expired.")
    elif claim.signed_at > now:
        check_skew(claim.signed_at, now)
    # The payload hash is part of what is signed in any case, so its header needs no mention.
    unsigned = [
        name
        for name in request.headers
        if name.startswith(_GUARDED)
        and name not in claim.signed_headers
        and not name.endswith("-content-sha256")
    ]
    if unsigned or "host" not in claim.signed_headers:
        raise S3Error(
            "AccessDenied",
            "There were headers present in the request which were not signed.",
            HeadersNotSigned=", ".join(unsigned or ["host"]),
        )
    return Seed(key, claim.timestamp, claim.scope, claim.signature)


@lru_cache(maxsize=256)
def signing_key(secret: str, scope: str) -> bytes:
    """The key of one day, region and service."""
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def _signature(claim: V4Claim, canonical: str, key: bytes) -> str:
    digest = hashlib.sha256(canonical.encode("utf-8", "surrogateescape")).hexdigest()
    text = f"{ALGORITHM}\n{claim.timestamp}\n{claim.scope}\n{digest}"
    # Not by `hmac.digest`, which passes Python's lock on to another thread, and has to get it back.
    return hmac.new(key, text.encode(), "sha256").hexdigest()


def _canonical_requests(claim: V4Claim, request: SignedRequest) -> Iterator[str]:
    lines = []
    for name in claim.signed_headers:
        value = request.header(name)
        if not value.isascii():
            # Header bytes are UTF-8 to those who sign them.
            value = value.encode("latin-1").decode("utf-8", "surrogateescape")
        value = value.strip()
        lines.append(f"{name}:{_SPACES.sub(' ', value) if '  ' in value else value}\n")
    pairs = sorted(
        (_encode(name), _encode(value))
        for name, value, _ in split_query(request.query)
        if not (claim.is_query and name == "X-Amz-Signature")
    )
    query = "&".join(f"{name}={value}" for name, value in pairs)
    encoded = request.path
    if not _PLAIN.fullmatch(encoded):
        encoded = quote(unquote_to_bytes(encoded.encode("latin-1")), safe="/" + _SAFE)
    # Some clients leave a character as it is that the rules would encode: they signed what they sent.
    for path in {encoded, request.path}:
        yield "\n".join(
            (
                request.method,
                path or "/",
                query,
                "".join(lines),
                ";".join(claim.signed_headers),
                claim.payload_hash,
            )
        )


def _encode(text: str) -> str:
    return quote(text, safe=_SAFE, errors="surrogateescape")


def _split_credential(text: str) -> tuple[str, str]:
    access_key, slash, scope = text.partition("/")
    parts = scope.split("/")
    if not slash or len(parts) != 4 or not all(parts):
        raise _malformed("The Credential must be <access key>/<date>/<region>/s3/aws4_request.")
    if parts[2] != "s3" or parts[3] != "aws4_request":
        raise _malformed("The Credential must be for the service s3 and end in aws4_request.")
    return access_key, scope


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(name.lower() for name in text.split(";") if name)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%dT%H%M%SZ")


def _malformed(message: str) -> S3Error:
    return S3Error("AuthorizationHeaderMalformed", message)


def _malformed_query(message: str) -> S3Error:
    return S3Error("AuthorizationQueryParametersError", message)
