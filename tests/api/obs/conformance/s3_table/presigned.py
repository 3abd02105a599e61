"""URLs that carry their signature: V4, V2 and OBS's own."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlsplit

from s3_table.case import Answer, Case
from s3_table.signing import KeyPair, Scope, presign_old, presign_v4
from s3_table.stage import CONTENT, Stage, there

__all__ = ["CASES", "old_url"]

_V4, _V2 = "Presigned URL (V4)", "Presigned URL (V2)"


def _send(stage: Stage, url: str, method: str = "GET", body: bytes = b"", **headers: str) -> Answer:
    sent = {"host": stage.target.host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    if method == "PUT":
        sent["content-length"] = str(len(body))
    return stage.target.send(method, url, sent, body)


def _wrong(stage: Stage) -> KeyPair:
    return KeyPair(stage.target.keys["dev"].access_key, "wrong")


def _url(
    stage: Stage, method: str = "GET", key: str = "there", pair: KeyPair | None = None, **more: Any
) -> str:
    return presign_v4(
        pair or stage.target.keys["dev"],
        method,
        stage.path(getattr(stage, key)),
        stage.target.host,
        **more,
    )


def old_url(
    stage: Stage,
    method: str = "GET",
    key: str = "there",
    seconds: float = 300,
    word: str = "AWS",
    pair: KeyPair | None = None,
) -> str:
    """A URL signed in the older way."""
    return presign_old(
        pair or stage.target.keys["dev"], word, method, stage.path(getattr(stage, key)), time.time() + seconds
    )


def _boto(operation: str, key: str = "there", **more: Any) -> Any:
    """A URL that boto3 made."""

    def call(stage: Stage) -> str:
        client = stage.target.client("dev")
        arguments = {"Bucket": stage.bucket, "Key": getattr(stage, key), **more}
        found = urlsplit(client.generate_presigned_url(operation, Params=arguments, ExpiresIn=300))
        return f"{found.path}?{found.query}"

    return call


def _whole(s: Stage, a: Answer) -> tuple[object, object]:
    return a.body, CONTENT


def _nothing(s: Stage, a: Answer) -> tuple[object, object]:
    return s.dev.head_object(Key=s.key).status, 404


def _stays(s: Stage, a: Answer) -> tuple[object, object]:
    return s.read(s.there), CONTENT


CASES = [
    Case(_V4, "GET", lambda s: _send(s, _boto("get_object")(s)), before=(there,), then=_whole),
    Case(_V4, "HEAD", lambda s: _send(s, _boto("head_object")(s), "HEAD"), before=(there,)),
    Case(
        _V4,
        "PUT",
        lambda s: _send(s, _boto("put_object", "key")(s), "PUT", b"x"),
        then=lambda s, a: (s.read(s.key), b"x"),
    ),
    Case(
        _V4,
        "DELETE",
        lambda s: _send(s, _boto("delete_object")(s), "DELETE"),
        204,
        before=(there,),
        then=lambda s, a: (s.dev.head_object(Key=s.there).status, 404),
    ),
    Case(
        _V4,
        "with a range",
        lambda s: _send(s, _url(s), range="bytes=0-1"),
        206,
        before=(there,),
        then=lambda s, a: (a.body, b"01"),
    ),
    Case(
        _V4,
        "another type in the answer",
        lambda s: _send(s, _boto("get_object", ResponseContentType="text/html")(s)),
        before=(there,),
        then=lambda s, a: (a.headers.get("content-type"), "text/html"),
    ),
    Case(_V4, "a week", lambda s: _send(s, _url(s, seconds=604_800)), before=(there,), then=_whole),
    Case(
        _V4,
        "expired",
        lambda s: _send(s, _url(s, seconds=60, scope=Scope(skew=-120))),
        403,
        "AccessDenied",
        before=(there,),
    ),
    Case(
        _V4,
        "expired, and nothing is written",
        lambda s: _send(s, _url(s, "PUT", "key", seconds=60, scope=Scope(skew=-120)), "PUT", b"x"),
        403,
        "AccessDenied",
        then=_nothing,
    ),
    Case(
        _V4,
        "of a clock that is far ahead",
        lambda s: _send(s, _url(s, scope=Scope(skew=3600))),
        403,
        "RequestTimeTooSkewed",
        before=(there,),
    ),
    Case(
        _V4,
        "more than a week",
        lambda s: _send(s, _url(s, seconds=604_801)),
        400,
        "AuthorizationQueryParametersError",
        before=(there,),
    ),
    Case(
        _V4,
        "a lifetime that is no number",
        lambda s: _send(s, _url(s, seconds="long")),
        400,
        "AuthorizationQueryParametersError",
        before=(there,),
    ),
    Case(
        _V4,
        "a lifetime below zero",
        lambda s: _send(s, _url(s, seconds=-1)),
        400,
        "AuthorizationQueryParametersError",
        before=(there,),
    ),
    Case(
        _V4,
        "a lifetime that was made longer",
        lambda s: _send(s, _url(s).replace("X-Amz-Expires=300", "X-Amz-Expires=3000")),
        403,
        "SignatureDoesNotMatch",
        before=(there,),
    ),
    Case(
        _V4,
        "of another method",
        lambda s: _send(s, _url(s), "DELETE"),
        403,
        "SignatureDoesNotMatch",
        before=(there,),
        then=_stays,
    ),
    Case(
        _V4,
        "of GET, used for PUT",
        lambda s: _send(s, _url(s, key="key"), "PUT", b"x"),
        403,
        "SignatureDoesNotMatch",
        then=_nothing,
    ),
    Case(
        _V4,
        "another key than was signed",
        lambda s: _send(s, _url(s).replace("/there?", "/their?")),
        403,
        "SignatureDoesNotMatch",
        before=(there,),
    ),
    Case(
        _V4,
        "a parameter that was added",
        lambda s: _send(s, _url(s) + "&response-content-type=text/html"),
        403,
        "SignatureDoesNotMatch",
        before=(there,),
    ),
    Case(
        _V4,
        "a header that was added",
        lambda s: _send(s, _url(s, "PUT", "key"), "PUT", b"x", x_amz_acl="public-read"),
        403,
        "AccessDenied",
        then=_nothing,
    ),
    Case(
        _V4,
        "a wrong secret",
        lambda s: _send(s, _url(s, pair=_wrong(s))),
        403,
        "SignatureDoesNotMatch",
        before=(there,),
    ),
    Case(
        _V4,
        "an access key that is unknown",
        lambda s: _send(s, _url(s, pair=KeyPair("AKIAUNKNOWN000000000", "x"))),
        403,
        "InvalidAccessKeyId",
        before=(there,),
    ),
    Case(
        _V4,
        "a part of the signature is missing",
        lambda s: _send(s, _url(s).replace("X-Amz-SignedHeaders", "X-Amz-Signed")),
        400,
        "AuthorizationQueryParametersError",
        before=(there,),
    ),
    Case(
        _V4,
        "an algorithm that is unknown",
        lambda s: _send(s, _url(s).replace("AWS4-HMAC-SHA256", "AWS4-HMAC-MD5")),
        400,
        "AuthorizationQueryParametersError",
        before=(there,),
    ),
    Case(
        _V4,
        "beside another signature",
        lambda s: _send(s, _url(s), authorization="AWS a:b"),
        400,
        "InvalidArgument",
        before=(there,),
    ),
    Case(_V2, "GET", lambda s: _send(s, old_url(s)), before=(there,), then=_whole),
    Case(_V2, "HEAD", lambda s: _send(s, old_url(s, "HEAD"), "HEAD"), before=(there,)),
    Case(
        _V2,
        "PUT",
        lambda s: _send(s, old_url(s, "PUT", "key"), "PUT", b"x"),
        then=lambda s, a: (s.read(s.key), b"x"),
    ),
    Case(_V2, "expired", lambda s: _send(s, old_url(s, seconds=-5)), 403, "AccessDenied", before=(there,)),
    Case(
        _V2,
        "a lifetime that was made longer",
        lambda s: _send(s, old_url(s).replace("Expires=", "Expires=9")),
        403,
        "SignatureDoesNotMatch",
        before=(there,),
    ),
    Case(
        _V2,
        "of another method",
        lambda s: _send(s, old_url(s), "DELETE"),
        403,
        "SignatureDoesNotMatch",
        before=(there,),
        then=_stays,
    ),
    Case(
        _V2,
        "another key than was signed",
        lambda s: _send(s, old_url(s).replace("/there?", "/their?")),
        403,
        "SignatureDoesNotMatch",
        before=(there,),
    ),
    Case(
        _V2,
        "a wrong secret",
        lambda s: _send(s, old_url(s, pair=_wrong(s))),
        403,
        "SignatureDoesNotMatch",
        before=(there,),
    ),
    Case(
        _V2,
        "without its end",
        lambda s: _send(s, old_url(s).replace("Expires=", "Ends=")),
        403,
        "AccessDenied",
        before=(there,),
    ),
]
