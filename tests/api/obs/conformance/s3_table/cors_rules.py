"""The CORS rules of a bucket, and what a browser asks for."""

from __future__ import annotations

from typing import Any

from s3_table.case import Answer, Case
from s3_table.setting_steps import closed
from s3_table.stage import Stage, own

__all__ = ["CASES"]

_CORS = {
    "CORSRules": [
        {"AllowedOrigins": ["https://lab.example"], "AllowedMethods": ["GET"], "AllowedHeaders": ["x-*"]}
    ]
}


def with_cors(stage: Stage) -> None:
    """A bucket that pages of one origin may read."""
    own(stage)
    stage.dev.put_bucket_cors(CORSConfiguration=_CORS)


def _preflight(origin: str = "https://lab.example", method: str = "GET", headers: str = "") -> Any:
    sent = {
        "origin": origin,
        "access-control-request-method": method,
        "access-control-request-headers": headers,
    }
    return lambda s: s.target.send(
        "OPTIONS",
        s.path("x"),
        {"host": s.target.host, **{name: value for name, value in sent.items() if value}},
    )


def _cors_stays(s: Stage, a: Answer) -> tuple[object, object]:
    # Zero seconds, where nothing was said of them, say nothing.
    found = [dict(rule) for rule in s.dev.get_bucket_cors()["CORSRules"]]
    for rule in found:
        if not rule.get("MaxAgeSeconds"):
            rule.pop("MaxAgeSeconds", None)
    return found, _CORS["CORSRules"]


_CORS_CASES = [
    Case(
        "PutBucketCors",
        "a rule",
        lambda s: s.dev.put_bucket_cors(CORSConfiguration=_CORS),
        before=(own,),
        then=_cors_stays,
    ),
    Case(
        "GetBucketCors",
        "some rules",
        lambda s: s.dev.get_bucket_cors(),
        before=(with_cors,),
        then=_cors_stays,
    ),
    Case(
        "GetBucketCors",
        "none",
        lambda s: s.dev.get_bucket_cors(),
        404,
        "NoSuchCORSConfiguration",
        before=(own,),
    ),
    Case(
        "DeleteBucketCors",
        "all",
        lambda s: s.dev.delete_bucket_cors(),
        204,
        before=(with_cors,),
        then=lambda s, a: (s.dev.get_bucket_cors().code, "NoSuchCORSConfiguration"),
    ),
    Case(
        "PutBucketCors",
        "no rule",
        lambda s: s.raw_document("cors", b"<CORSConfiguration/>"),
        400,
        "MalformedXML",
        before=(with_cors,),
        then=_cors_stays,
    ),
    Case(
        "PutBucketCors",
        "no XML",
        lambda s: s.raw_document("cors", b"{}"),
        400,
        "MalformedXML",
        before=(with_cors,),
        then=_cors_stays,
    ),
    Case(
        "PutBucketCors",
        "a method that is unknown",
        lambda s: s.dev.put_bucket_cors(
            CORSConfiguration={"CORSRules": [{"AllowedOrigins": ["*"], "AllowedMethods": ["TRACE"]}]}
        ),
        400,
        "InvalidRequest",
        before=(with_cors,),
        then=_cors_stays,
    ),
    Case(
        "PutBucketCors",
        "two stars in an origin",
        lambda s: s.dev.put_bucket_cors(
            CORSConfiguration={"CORSRules": [{"AllowedOrigins": ["http://*.*"], "AllowedMethods": ["GET"]}]}
        ),
        400,
        "InvalidRequest",
        before=(with_cors,),
        then=_cors_stays,
    ),
    Case(
        "PutBucketCors",
        "a rule without an origin",
        lambda s: s.raw_document(
            "cors",
            b"<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>",
        ),
        400,
        "MalformedXML",
        before=(with_cors,),
        then=_cors_stays,
    ),
    Case(
        "PutBucketCors",
        "a hundred and one rules",
        lambda s: s.dev.put_bucket_cors(CORSConfiguration={"CORSRules": _CORS["CORSRules"] * 101}),
        400,
        "MalformedXML",
        before=(with_cors,),
        then=_cors_stays,
    ),
    *closed("bucket_cors", {"CORSConfiguration": _CORS}),
    Case(
        "OPTIONS",
        "an origin that is allowed",
        _preflight(headers="x-amz-date"),
        before=(with_cors,),
        then=lambda s, a: (
            (a.headers.get("access-control-allow-origin"), a.headers.get("access-control-allow-headers")),
            ("https://lab.example", "x-amz-date"),
        ),
    ),
    Case(
        "OPTIONS",
        "another origin",
        _preflight("https://evil.example"),
        403,
        "AccessForbidden",
        before=(with_cors,),
    ),
    Case(
        "OPTIONS", "another method", _preflight(method="DELETE"), 403, "AccessForbidden", before=(with_cors,)
    ),
    Case(
        "OPTIONS",
        "another header",
        _preflight(headers="authorization"),
        403,
        "AccessForbidden",
        before=(with_cors,),
    ),
    Case("OPTIONS", "a bucket without rules", _preflight(), 403, "AccessForbidden", before=(own,)),
    Case("OPTIONS", "without an origin", _preflight(origin=""), 400, "BadRequest", before=(with_cors,)),
    Case("OPTIONS", "without a method", _preflight(method=""), 400, "BadRequest", before=(with_cors,)),
    Case(
        "OPTIONS",
        "the answer to the page itself",
        lambda s: s.raw("GET", f"/{s.bucket}", later={"origin": "https://lab.example"}),
        before=(with_cors,),
        then=lambda s, a: (a.headers.get("access-control-allow-origin"), "https://lab.example"),
    ),
]


CASES = [*_CORS_CASES]
