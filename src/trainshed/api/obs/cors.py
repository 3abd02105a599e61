"""Which pages of other origins may reach a bucket from a browser: its CORS rules, preflights, and their headers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

from trainshed.api.obs.body import receive_document
from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.visit import Visit, no_such_bucket
from trainshed.api.obs.xml_codec import children, malformed_xml, parse_xml, text_of
from trainshed.model.errors import NotFound

__all__ = [
    "CorsRule",
    "answer_preflight",
    "delete_cors",
    "find_rule",
    "get_cors",
    "parse_cors",
    "put_cors",
    "read_origin",
]

_METHODS = ("GET", "PUT", "HEAD", "POST", "DELETE")
_MOST_RULES = 100
_MAX_SIZE = 64 << 10
# What goes out in a header again must be able to stand in one.
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_ORIGIN = re.compile(r"[\x21-\x7e]+")
_VARY = "Origin, Access-Control-Request-Headers, Access-Control-Request-Method"


@dataclass(frozen=True)
class CorsRule:
    """Pages of these origins may send requests with these methods and headers."""

    origins: tuple[str, ...]
    methods: tuple[str, ...]
    headers: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()
    max_age: int | None = None
    id: str = ""

    def allows(self, origin: str, method: str, headers: Iterable[str] = ()) -> bool:
        """Whether a page of the origin may send such a request."""
        return (
            method in self.methods
            and _is_one_of(origin, self.origins)
            and all(_is_one_of(name.lower(), (known.lower() for known in self.headers)) for name in headers)
        )

    def answer(self, origin: str) -> dict[str, str]:
        """The headers that tell a browser so."""
        is_open = "*" in self.origins
        answer = {
            "access-control-allow-origin": "*" if is_open else origin,
            "access-control-allow-methods": ", ".join(self.methods),
            "vary": _VARY,
        }
        if not is_open:
            answer["access-control-allow-credentials"] = "true"
        if self.exposed:
            answer["access-control-expose-headers"] = ", ".join(self.exposed)
        if self.max_age is not None:
            answer["access-control-max-age"] = str(self.max_age)
        return answer


def find_rule(
    rules: Iterable[CorsRule], origin: str, method: str, headers: Iterable[str] = ()
) -> CorsRule | None:
    """The first rule that allows a request; only that one counts."""
    wanted = list(headers)
    return next((rule for rule in rules if rule.allows(origin, method, wanted)), None)


def parse_cors(body: bytes) -> list[CorsRule]:
    """The rules of a `CORSConfiguration` document."""
    rules = [_parse_rule(element) for element in children(parse_xml(body, "CORSConfiguration"), "CORSRule")]
    if not 1 <= len(rules) <= _MOST_RULES:
        raise malformed_xml()
    return rules


def _parse_rule(element: Element) -> CorsRule:
    def texts(name: str) -> tuple[str, ...]:
        return tuple((found.text or "").strip() for found in children(element, name))

    age = text_of(element, "MaxAgeSeconds", "").strip()
    if age and not (age.isascii() and age.isdigit() and len(age) < 10):
        raise malformed_xml()
    rule = CorsRule(
        origins=texts("AllowedOrigin"),
        methods=texts("AllowedMethod"),
        headers=texts("AllowedHeader"),
        exposed=texts("ExposeHeader"),
        max_age=int(age) if age else None,
        id=text_of(element, "ID", ""),
    )
    if not rule.origins or not rule.methods or len(rule.id) > 255:
        raise malformed_xml()
    for method in rule.methods:
        if method not in _METHODS:
            raise S3Error(
                "InvalidRequest",
                f"Found unsupported HTTP method in CORS config. Unsupported method is {method[:40]}",
            )
    for name, values, form in (
        ("AllowedOrigin", rule.origins, _ORIGIN),
        ("AllowedHeader", rule.headers, _TOKEN),
        ("ExposeHeader", rule.exposed, _TOKEN),
    ):
        for value in values:
            if not form.fullmatch(value):
                raise malformed_xml()
            if value.count("*") > (0 if name == "ExposeHeader" else 1):
                raise S3Error("InvalidRequest", f'{name} "{value[:80]}" can not have so many wildcards.')
    return rule


def _is_one_of(text: str, patterns: Iterable[str]) -> bool:
    for pattern in patterns:
        start, star, end = pattern.partition("*")
        if text == pattern or (
            star and len(text) >= len(start) + len(end) and text.startswith(start) and text.endswith(end)
        ):
            return True
    return False


# --- requests ---


async def get_cors(visit: Visit) -> None:
    """The rules of a bucket."""
    text = await visit.do(lambda: (visit.owned(), visit.store.bucket_document(visit.bucket, "cors"))[1])
    if not text:
        raise S3Error(
            "NoSuchCORSConfiguration", "The CORS configuration does not exist", BucketName=visit.bucket
        )
    rules = [("CORSRule", _describe(rule)) for rule in parse_cors(text.encode())]
    await visit.answer_xml("CORSConfiguration", rules)


def _describe(rule: CorsRule) -> list[tuple[str, Any]]:
    return [
        ("ID", rule.id or None),
        *(("AllowedOrigin", value) for value in rule.origins),
        *(("AllowedMethod", value) for value in rule.methods),
        *(("AllowedHeader", value) for value in rule.headers),
        ("MaxAgeSeconds", rule.max_age),
        *(("ExposeHeader", value) for value in rule.exposed),
    ]


async def put_cors(visit: Visit) -> None:
    """Set the rules of a bucket."""
    await visit.do(visit.owned)
    body = await receive_document(visit)
    if len(body) > _MAX_SIZE:
        raise S3Error("MaxMessageLengthExceeded", "A CORS configuration has 64 KB at most.")
    parse_cors(body)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise malformed_xml() from None
    await visit.do(lambda: visit.store.set_bucket_document(visit.bucket, "cors", text))
    await visit.answer(200)


async def delete_cors(visit: Visit) -> None:
    """Remove the rules of a bucket."""
    await visit.do(visit.owned)
    await visit.do(lambda: visit.store.set_bucket_document(visit.bucket, "cors", ""))
    await visit.answer(204)


async def answer_preflight(visit: Visit) -> None:
    """Tell a browser whether a page may send the request that it asks for; nobody signs such a question."""
    origin = visit.headers.get("origin", "")
    if not origin:
        raise S3Error("BadRequest", "Insufficient information. Origin request header needed.")
    method = visit.headers.get("access-control-request-method", "")
    if method not in _METHODS:
        raise S3Error("BadRequest", f"Invalid Access-Control-Request-Method: {method[:40] or 'null'}")
    asked = visit.headers.get("access-control-request-headers", "")
    names = [name.strip().lower() for name in asked.split(",") if name.strip()]
    rules = await visit.exchange.in_thread(_load, visit)
    if not rules:
        raise S3Error("AccessForbidden", "CORSResponse: CORS is not enabled for this bucket.")
    rule = find_rule(rules, origin, method, names)
    if rule is None:
        raise S3Error(
            "AccessForbidden",
            "CORSResponse: This CORS request is not allowed. This is usually because the evaluation of Origin,"
            " request method / Access-Control-Request-Method or Access-Control-Request-Headers are not"
            " whitelisted by the resource's CORS spec.",
        )
    headers = rule.answer(origin)
    if names:
        headers["access-control-allow-headers"] = ", ".join(names)
    await visit.answer(200, headers)


async def read_origin(visit: Visit) -> None:
    """Give the answer the headers with which a browser shows it to the page that asked."""
    origin = visit.headers.get("origin", "")
    if not origin or not visit.bucket or visit.method not in _METHODS:
        return
    try:
        rules = await visit.exchange.in_thread(_load, visit)
    except NotFound:
        return  # The operation itself will tell.
    rule = find_rule(rules, origin, visit.method)
    if rule is not None:
        visit.extra_headers.update(rule.answer(origin))


def _load(visit: Visit) -> list[CorsRule]:
    if not visit.bucket or visit.bucket.startswith("."):
        raise no_such_bucket(visit.bucket)
    try:
        text = visit.store.bucket_document(visit.bucket, "cors")
    except NotFound:
        raise no_such_bucket(visit.bucket) from None
    return parse_cors(text.encode()) if text else []
