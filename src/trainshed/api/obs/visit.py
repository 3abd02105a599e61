"""One request of an S3 or OBS client: what it is about, whose it is, and how it is answered in its dialect."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar
from urllib.parse import unquote_to_bytes

from trainshed.api.obs.authorization import Proof, Scheme, check_claim, read_claim
from trainshed.api.obs.desk import Later
from trainshed.api.obs.errors import S3Error, translate_error
from trainshed.api.obs.exchange import Exchange
from trainshed.api.obs.signatures.claim import Claim, SignedRequest, split_query
from trainshed.api.obs.xml_codec import S3_NAMESPACE, Content, render_xml
from trainshed.model.errors import NotAllowed, NotAuthenticated, NotFound, TrainshedError
from trainshed.services import bucket_sharing, buckets
from trainshed.services.access_keys import KeyOwner, authenticate_access_key
from trainshed.services.identity import Caller
from trainshed.services.platform import Platform
from trainshed.store.object_store import Bucket, ObjectStore

__all__ = ["OBS_NAMESPACE", "REGION", "Visit", "no_such_bucket", "owner_of", "split_host"]

T = TypeVar("T")

# Where all buckets are, to clients that ask.
REGION = "us-east-1"
OBS_NAMESPACE = "http://obs.myhwclouds.com/doc/2015-06-30/"
_MAX_DOCUMENT = 2 << 20
# The names of the clouds' own endpoints, which may lead here through a hosts file.
_ENDPOINT = re.compile(r"(?:(?P<bucket>[a-z0-9][a-z0-9.-]*)\.)?(?:obs|s3)[.-][a-z0-9.-]+")


# Unique without asking the system for a number each time.
_run, _count = int.from_bytes(os.urandom(4), "big"), itertools.count()


def split_host(host: str, domains: Sequence[str]) -> str:
    """The bucket in a host name, or nothing: `data.localhost:7481` has `data`. The longest domain comes first."""
    return _split_host(host, tuple(domains))


@lru_cache(maxsize=256)
def _split_host(host: str, domains: tuple[str, ...]) -> str:
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    name = name.lower().rstrip(".")
    if name in domains:
        return ""
    for domain in domains:
        if name.endswith("." + domain):
            return name.removesuffix("." + domain)
    found = _ENDPOINT.fullmatch(name)
    return (found["bucket"] or "") if found else ""


class Visit:
    """A request with its place and its signature. Whose it is, is asked in the thread that does the work."""

    def __init__(self, platform: Platform, exchange: Exchange, domains: Sequence[str]) -> None:
        self.platform = platform
        self.store: ObjectStore = platform.store
        self.exchange = exchange
        self.method = exchange.method
        self.headers = exchange.headers
        self.request_id = f"{_run:08X}{next(_count) & 0xFFFFFFFF:08X}"
        self.proof = Proof()
        # Headers that every answer to this request has, be it an error.
        self.extra_headers: dict[str, str] = {}
        self._caller: Caller | None = None
        self._is_known = False
        self._scheme: Scheme | None = None
        self._claim: Claim | None = None
        # Until the signature was read, errors are told in the dialect that the headers look like.
        self._speak("\nx-obs-" in "\n" + "\n".join(exchange.headers))
        host_bucket = split_host(exchange.headers.get("host", ""), domains)
        self.signed = SignedRequest(
            exchange.method, exchange.path, exchange.raw_query, exchange.headers, host_bucket
        )
        self.bucket, self.key = self._read_place(host_bucket)
        self.query: dict[str, str] = {}

    def _read_place(self, host_bucket: str) -> tuple[str, str]:
        path = self.exchange.path.removeprefix("/")
        bucket, _, key = (host_bucket, "", path) if host_bucket else path.partition("/")
        return _decode(bucket), _decode(key)

    def read(self) -> None:
        """Read the query and the signature; refuses what cannot be read."""
        found = read_claim(self.signed)
        if found is not None:
            self._scheme, self._claim = found
            self._speak(self._scheme == "obs")
        if self.signed.query:
            for name, value, _ in split_query(self.signed.query):
                _check_text(name)
                self.query[name] = _check_text(value)
        _check_text(self.bucket)
        _check_text(self.key)

    # --- the dialect ---

    @property
    def is_obs(self) -> bool:
        """Whether the client speaks OBS's own dialect."""
        return self._is_obs

    @property
    def is_signed(self) -> bool:
        """Whether the request carries a signature."""
        return self._claim is not None

    def _speak(self, is_obs: bool) -> None:
        self._is_obs = is_obs
        # The beginning of the headers that count. The others are not covered by the signature.
        self.prefix = "x-obs-" if is_obs else "x-amz-"

    def option(self, name: str) -> str:
        """The header `x-amz-<name>`, or `x-obs-<name>` in OBS's dialect."""
        return self.headers.get(self.prefix + name, "")

    # --- who asks ---

    async def do(self, work: Callable[[], T | Later[T]], *, is_prompt: bool = False) -> T:
        """Run work, after the signature was found to be right; in a thread, unless it usually waits for nothing."""

        def checked() -> T | Later[T]:
            self._identify()
            return work()

        return await (self.exchange.at_once(checked) if is_prompt else self.exchange.at_desk(checked))

    def _identify(self) -> None:
        if self._is_known:
            return
        if self._claim is not None and self._scheme is not None:
            owner = self._owner(self._claim.access_key)
            now = self.platform.clock()
            self.proof = check_claim(self._scheme, self._claim, self.signed, owner.secret_key, now)
            self._caller = owner.caller
        self._is_known = True

    def trust(self, scheme: Scheme, access_key: str, check: Callable[[str], None]) -> None:
        """Take the owner of a key as the caller of a request whose body is signed, if `check` likes its secret."""
        self._speak(scheme == "obs")
        owner = self._owner(access_key)
        check(owner.secret_key)
        self._caller, self._is_known = owner.caller, True

    def _owner(self, access_key: str) -> KeyOwner:
        try:
            return authenticate_access_key(self.platform, access_key)
        except NotAuthenticated:
            raise S3Error(
                "InvalidAccessKeyId",
                "The access key ID you provided does not exist in our records.",
                AWSAccessKeyId=access_key[:128],
            ) from None

    @property
    def caller(self) -> Caller:
        """Who signed the request."""
        if self._caller is None:
            raise S3Error("AccessDenied", "Access Denied")
        return self._caller

    def owned(self) -> Bucket:
        """The bucket, if this client may change its settings."""
        return self._allowed(self.bucket, buckets.writable_bucket, lambda: False)

    def readable(self, name: str = "") -> Bucket:
        """The bucket, if this client may list its objects."""
        name = name or self.bucket
        return self._allowed(
            name,
            buckets.readable_bucket,
            lambda: bucket_sharing.may_list_shared(self.platform, self._caller, name),
        )

    def readable_object(self, name: str, key: str, version: str = "") -> Bucket:
        """The bucket, if this client may read this object of it."""
        return self._allowed(
            name,
            buckets.readable_bucket,
            lambda: bucket_sharing.may_read_shared(self.platform, self._caller, name, key, version),
        )

    def writable(self, action: str = "PutObject") -> Bucket:
        """The bucket, if this client may do this to the object in question (to all, when it names none)."""
        return self._allowed(
            self.bucket,
            buckets.writable_bucket,
            lambda: bucket_sharing.may_write_shared(
                self.platform, self._caller, self.bucket, self.key or "*", action
            ),
        )

    def _allowed(
        self, name: str, ask: Callable[[Platform, Caller, str], Bucket], is_shared: Callable[[], bool]
    ) -> Bucket:
        if name.startswith("."):
            raise no_such_bucket(name)
        refusal: TrainshedError | None = None
        try:
            if self._caller is not None:
                return self._expected(ask(self.platform, self._caller, name))
        except NotFound:
            pass
        except NotAllowed as error:
            refusal = error
        # To S3's clients, a bucket of somebody else is there but closed.
        try:
            bucket = self.store.bucket(name)
        except NotFound:
            raise no_such_bucket(name) from None
        if is_shared():
            return self._expected(bucket)
        raise refusal or S3Error("AccessDenied", "Access Denied")

    def _expected(self, bucket: Bucket) -> Bucket:
        """The bucket, unless the client says that somebody else should own it."""
        is_target = bucket.name == self.bucket
        owner = self.option("expected-bucket-owner" if is_target else "source-expected-bucket-owner")
        if owner and owner != bucket.workspace_id:
            raise S3Error("AccessDenied", "Access Denied")
        return bucket

    # --- bodies ---

    async def document(self, limit: int = _MAX_DOCUMENT) -> bytes:
        """A short body as a whole."""
        parts, size = [], 0
        async for piece in self.exchange.pieces():
            size += len(piece)
            if size > limit:
                raise S3Error("MaxMessageLengthExceeded", "Your request was too big.")
            parts.append(piece)
        return b"".join(parts)

    # --- answers ---

    async def answer(self, status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> None:
        """Send a short answer."""
        await self.exchange.answer(status, self.dress(headers or {}), body)

    async def answer_xml(
        self, name: str, content: Content, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a document."""
        namespace = OBS_NAMESPACE if self._is_obs else S3_NAMESPACE
        body = render_xml(name, content, namespace=namespace)
        await self.answer(status, {"content-type": "application/xml", **(headers or {})}, body)

    async def answer_error(self, error: TrainshedError) -> None:
        """Send an error as the client expects it."""
        if self.exchange.has_begun:
            raise error
        await self.exchange.drain()
        known = translate_error(error)
        if known.status == 304:
            await self.exchange.answer(304, self.dress({}))
            return
        content: list[tuple[str, str]] = [
            ("Code", known.code),
            ("Message", known.message),
            ("Resource", "/" + "/".join(part for part in (self.bucket, self.key) if part)),
            *known.details.items(),
            ("RequestId", self.request_id),
            ("HostId", self.request_id),
        ]
        body = render_xml("Error", content, namespace="")
        headers = {"content-type": "application/xml"}
        if known.status == 503:
            headers["retry-after"] = "1"
        await self.exchange.answer(known.status, self.dress(headers), body)

    def dress(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Headers in the client's dialect, with the request's number."""
        dressed = {
            "server": "Trainshed",
            f"{self.prefix}request-id": self.request_id,
            f"{self.prefix}id-2": self.request_id,
            **self.extra_headers,
        }
        for name, value in headers.items():
            if self._is_obs and name.startswith("x-amz-"):
                name = "x-obs-" + name.removeprefix("x-amz-")
            dressed[name] = value
        return dressed


def owner_of(workspace_id: str) -> list[tuple[str, str]]:
    """A workspace as the owner of what it has."""
    return [("ID", workspace_id), ("DisplayName", workspace_id)]


def no_such_bucket(name: str) -> S3Error:
    """The error for a bucket that is not there."""
    return S3Error("NoSuchBucket", "The specified bucket does not exist", BucketName=name[:80])


def _decode(text: str) -> str:
    if "%" not in text and text.isascii():
        return text
    return unquote_to_bytes(text.encode("latin-1")).decode("utf-8", "surrogateescape")


def _check_text(text: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        raise S3Error("InvalidURI", "Couldn't parse the specified URI: it is no UTF-8.") from None
    return text
