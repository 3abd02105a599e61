"""Where the external store is, and with which keys it is opened."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from trainshed.model.errors import InvalidInput, Unavailable

__all__ = ["Address", "Credentials", "parse_address", "parse_place", "read_credentials"]

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_DEFAULT_REGION = "us-east-1"
_MAX_PREFIX_BYTES = 256


@dataclass(frozen=True)
class Credentials:
    """A pair of keys. Never part of a URL, a message or a log."""

    access_key: str
    secret_key: str = field(repr=False)


@dataclass(frozen=True)
class Address:
    """A bucket of an endpoint and a prefix in it, and the file that holds the keys."""

    bucket: str
    # Empty, or ending in `/`.
    prefix: str = ""
    # `http(s)://host[:port]`; with `{bucket}` in the host, buckets are names of hosts. Empty: Amazon's own.
    endpoint: str = ""
    region: str = _DEFAULT_REGION
    keys: str = ""

    @property
    def place(self) -> str:
        """Where the data lies, as an administrator writes it."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def url(self) -> str:
        """The URL by which `open_store` opens it. It names the file of the keys and holds none of them."""
        query = {"endpoint": self.endpoint, "region": self.region, "keys": self.keys}
        path = f"s3://{self.bucket}/{quote(self.prefix)}"
        return f"{path}?{urlencode({name: value for name, value in query.items() if value})}"

    @property
    def base(self) -> str:
        """Scheme and host of the endpoint, and the path of the bucket."""
        endpoint = self.endpoint or f"https://s3.{self.region}.amazonaws.com"
        if "{bucket}" in endpoint:
            return endpoint.replace("{bucket}", self.bucket)
        return f"{endpoint}/{self.bucket}"


def parse_place(place: str, *, endpoint: str = "", region: str = "", keys: str = "") -> Address:
    """Read what an administrator wrote: `s3://bucket/prefix`, the endpoint and the region."""
    parts = urlsplit(place)
    prefix = unquote(parts.path).strip("/")
    if parts.scheme != "s3" or not _BUCKET.fullmatch(parts.netloc) or parts.query or parts.fragment:
        raise _invalid(f"'{place[:120]}' is not the place of an external store.")
    if any(part in ("", ".", "..") for part in prefix.split("/") if prefix) or not prefix.isprintable():
        raise _invalid(f"'{prefix[:120]}' cannot be a prefix in a bucket.")
    if len(prefix.encode()) > _MAX_PREFIX_BYTES:
        raise _invalid(f"The prefix is longer than {_MAX_PREFIX_BYTES} bytes.")
    endpoint = endpoint.rstrip("/")
    if endpoint:
        host = urlsplit(endpoint)
        if host.scheme not in ("http", "https") or not host.hostname or host.path or host.query:
            raise InvalidInput(
                "The endpoint of the external store is not a URL of a host.",
                hint="Write it as https://host or http://host:port, without a path.",
                where="store_endpoint",
            )
        if host.username or host.password:
            raise InvalidInput(
                "The endpoint of the external store must not hold keys.",
                hint="Give them as store_access_key and store_secret_key.",
                where="store_endpoint",
            )
    return Address(parts.netloc, f"{prefix}/" if prefix else "", endpoint, region or _DEFAULT_REGION, keys)


def parse_address(url: str) -> Address:
    """Read the URL that `Address.url` gives."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    return parse_place(
        f"{parts.scheme}://{parts.netloc}{parts.path}",
        endpoint=query.get("endpoint", ""),
        region=query.get("region", ""),
        keys=query.get("keys", ""),
    )


def read_credentials(address: Address) -> Credentials:
    """The keys, from the file that the platform keeps them in."""
    try:
        values = json.loads(Path(address.keys).read_text("utf-8"))
        return Credentials(str(values["access_key"]), str(values["secret_key"]))
    except (OSError, ValueError, KeyError, TypeError):
        raise Unavailable(
            f"The keys of the external store {address.place} cannot be read.",
            hint="Start the platform with store_access_key and store_secret_key in its settings or environment.",
            code="store_refused",
        ) from None


def _invalid(message: str) -> InvalidInput:
    return InvalidInput(message, hint="Write it as s3://bucket or s3://bucket/prefix.", where="store_url")
