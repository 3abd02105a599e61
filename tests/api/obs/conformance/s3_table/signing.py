"""Signatures by hand, for requests that no client would make. Written from the reference, not from the server."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlencode

__all__ = [
    "EMPTY_SHA256",
    "UNSIGNED",
    "KeyPair",
    "Scope",
    "http_date",
    "presign_old",
    "presign_v4",
    "sign_old",
    "sign_v4",
]

EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
UNSIGNED = "UNSIGNED-PAYLOAD"
_ALGORITHM = "AWS4-HMAC-SHA256"
Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class KeyPair:
    """An access key and its secret."""

    access_key: str
    secret_key: str


@dataclass(frozen=True)
class Scope:
    """When and for what a V4 signature is made."""

    # Seconds that the signer's clock is ahead.
    skew: float = 0.0
    region: str = "us-east-1"
    service: str = "s3"
    # A day other than that of the signature's moment.
    day: str = ""

    @property
    def moment(self) -> str:
        """The signature's moment, as `20130524T000000Z`."""
        return (datetime.now(UTC) + timedelta(seconds=self.skew)).strftime("%Y%m%dT%H%M%SZ")

    def text(self, moment: str) -> str:
        """The scope of a credential."""
        return f"{self.day or moment[:8]}/{self.region}/{self.service}/aws4_request"


def http_date(skew: float = 0.0) -> str:
    """A moment as HTTP writes it."""
    return (datetime.now(UTC) + timedelta(seconds=skew)).strftime("%a, %d %b %Y %H:%M:%S GMT")


def _key(pair: KeyPair, scope: str) -> bytes:
    key = f"AWS4{pair.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def _signature(pair: KeyPair, scope: str, moment: str, canonical: str) -> str:
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join((_ALGORITHM, moment, scope, digest))
    return hmac.digest(_key(pair, scope), text.encode(), "sha256").hex()


def _query(pairs: Pairs) -> str:
    return "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted(pairs)
    )


def sign_v4(
    pair: KeyPair,
    method: str,
    path: str,
    query: Pairs,
    headers: dict[str, str],
    payload_hash: str,
    scope: Scope = Scope(),
    leave_out: tuple[str, ...] = (),
) -> dict[str, str]:
    """All headers of a signed request; `path` is as on the wire, `leave_out` names headers that are not signed."""
    moment = headers.get("x-amz-date") or scope.moment
    sent = {"x-amz-date": moment, "x-amz-content-sha256": payload_hash, **headers}
    names = sorted(name for name in sent if name not in leave_out)
    canonical = "\n".join(
        (
            method,
            path,
            _query(query),
            "".join(f"{name}:{' '.join(sent[name].split())}\n" for name in names),
            ";".join(names),
            payload_hash,
        )
    )
    signature = _signature(pair, scope.text(moment), moment, canonical)
    sent["authorization"] = (
        f"{_ALGORITHM} Credential={pair.access_key}/{scope.text(moment)}, SignedHeaders={';'.join(names)},"
        f" Signature={signature}"
    )
    return sent


def presign_v4(
    pair: KeyPair,
    method: str,
    path: str,
    host: str,
    seconds: int | str = 300,
    query: Pairs | None = None,
    scope: Scope = Scope(),
) -> str:
    """Path and query of a presigned URL."""
    moment = scope.moment
    pairs = [
        *(query or []),
        ("X-Amz-Algorithm", _ALGORITHM),
        ("X-Amz-Credential", f"{pair.access_key}/{scope.text(moment)}"),
        ("X-Amz-Date", moment),
        ("X-Amz-Expires", str(seconds)),
        ("X-Amz-SignedHeaders", "host"),
    ]
    canonical = "\n".join((method, path, _query(pairs), f"host:{host}\n", "host", UNSIGNED))
    signature = _signature(pair, scope.text(moment), moment, canonical)
    return f"{path}?{_query(pairs)}&X-Amz-Signature={signature}"


def _sha1(pair: KeyPair, text: str) -> str:
    return base64.b64encode(hmac.digest(pair.secret_key.encode(), text.encode(), "sha1")).decode()


def sign_old(
    pair: KeyPair, word: str, method: str, resource: str, headers: dict[str, str], date: str = ""
) -> dict[str, str]:
    """All headers of a request signed with AWS V2 (`word` is AWS) or OBS's own signature (OBS)."""
    prefix = "x-amz-" if word == "AWS" else "x-obs-"
    sent = {"date": date or http_date(), **headers}
    lines = [f"{name}:{sent[name]}" for name in sorted(sent) if name.startswith(prefix)]
    text = "\n".join(
        [
            method,
            sent.get("content-md5", ""),
            sent.get("content-type", ""),
            "" if f"{prefix}date" in sent else sent["date"],
            *lines,
            resource,
        ]
    )
    sent["authorization"] = f"{word} {pair.access_key}:{_sha1(pair, text)}"
    return sent


def presign_old(pair: KeyPair, word: str, method: str, path: str, expires: float) -> str:
    """Path and query of a URL presigned with AWS V2 or OBS's own signature."""
    moment = str(int(expires))
    name = "AWSAccessKeyId" if word == "AWS" else "AccessKeyId"
    signature = _sha1(pair, "\n".join((method, "", "", moment, path)))
    return f"{path}?{urlencode({name: pair.access_key, 'Expires': moment, 'Signature': signature})}"
