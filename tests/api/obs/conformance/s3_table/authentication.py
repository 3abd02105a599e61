"""Who a request is from: signatures in headers, clocks, wrong secrets, and nobody at all."""

from __future__ import annotations

from typing import Any

from s3_table.case import Answer, Case
from s3_table.signing import EMPTY_SHA256, KeyPair, Scope, http_date, sign_old, sign_v4
from s3_table.stage import CONTENT, Stage, there

__all__ = ["CASES"]


def _get(**more: Any) -> Any:
    return lambda s: s.raw("GET", s.path(s.there), **more)


def _put(**more: Any) -> Any:
    return lambda s: s.raw("PUT", s.path(s.key), body=b"x", **more)


def _pair(stage: Stage, **changes: str) -> KeyPair:
    pair = stage.target.keys["dev"]
    return KeyPair(changes.get("access_key", pair.access_key), changes.get("secret_key", pair.secret_key))


def _authorization(change: Any) -> Any:
    """A request whose Authorization header was changed after it was signed."""

    def call(stage: Stage) -> Answer:
        headers = {"host": stage.target.host}
        signed = sign_v4(stage.target.keys["dev"], "GET", stage.path(stage.there), [], headers, EMPTY_SHA256)
        signed["authorization"] = change(signed["authorization"])
        return stage.target.send("GET", stage.path(stage.there), signed)

    return call


def _old(method: str = "GET", date: str = "", secret: str = "", key: str = "there", **headers: str) -> Any:
    """A request signed with V2."""

    def call(stage: Stage) -> Answer:
        path = stage.path(getattr(stage, key))
        pair = _pair(stage, **({"secret_key": secret} if secret else {}))
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        body = b"x" if method == "PUT" else b""
        signed = sign_old(pair, "AWS", method, path, sent, date)
        if body:
            signed["content-length"] = "1"
        return stage.target.send(method, path, {"host": stage.target.host, **signed}, body)

    return call


def _whole(s: Stage, a: Answer) -> tuple[object, object]:
    return a.body, CONTENT


def _nothing(s: Stage, a: Answer) -> tuple[object, object]:
    return s.dev.head_object(Key=s.key).status, 404


_V4, _V2, _NONE = "Signature Version 4", "Signature Version 2", "Anonymous requests"
_MINUTES = 60.0

CASES = [
    Case(_V4, "a right one", _get(), before=(there,), then=_whole),
    Case(
        _V4,
        "a payload that is not signed",
        _put(payload_hash="UNSIGNED-PAYLOAD"),
        then=lambda s, a: (s.read(s.key), b"x"),
    ),
    Case(
        _V4,
        "a wrong secret",
        lambda s: _get(pair=_pair(s, secret_key="wrong"))(s),
        403,
        "SignatureDoesNotMatch",
        before=(there,),
    ),
    Case(
        _V4,
        "a wrong secret writes nothing",
        lambda s: _put(pair=_pair(s, secret_key="wrong"))(s),
        403,
        "SignatureDoesNotMatch",
        then=_nothing,
    ),
    Case(
        _V4,
        "an access key that is unknown",
        lambda s: _get(pair=_pair(s, access_key="AKIAUNKNOWN000000000"))(s),
        403,
        "InvalidAccessKeyId",
        before=(there,),
    ),
    Case(
        _V4,
        "the secret of another user",
        lambda s: _get(pair=_pair(s, secret_key=s.target.keys["stranger"].secret_key))(s),
        403,
        "SignatureDoesNotMatch",
        before=(there,),
    ),
    Case(
        _V4, "a clock 10 minutes behind", _get(scope=Scope(skew=-10 * _MINUTES)), before=(there,), then=_whole
    ),
    Case(
        _V4,
        "a clock 20 minutes behind",
        _get(scope=Scope(skew=-20 * _MINUTES)),
        403,
        "RequestTimeTooSkewed",
        before=(there,),
    ),
    Case(
        _V4,
        "a clock 20 minutes ahead",
        _get(scope=Scope(skew=20 * _MINUTES)),
        403,
        "RequestTimeTooSkewed",
        before=(there,),
    ),
    Case(
        _V4,
        "a clock 20 minutes behind writes nothing",
        _put(scope=Scope(skew=-20 * _MINUTES)),
        403,
        "RequestTimeTooSkewed",
        then=_nothing,
    ),
    Case(
        _V4,
        "a credential of another day",
        _get(scope=Scope(day="20130524")),
        400,
        "AuthorizationHeaderMalformed",
        before=(there,),
    ),
    Case(
        _V4,
        "a credential of another service",
        _get(scope=Scope(service="ec2")),
        400,
        "AuthorizationHeaderMalformed",
        before=(there,),
    ),
    Case(_V4, "no date", _get(later={"x-amz-date": "(none)"}), 403, "AccessDenied", before=(there,)),
    Case(
        _V4,
        "a date that is none",
        _get(later={"x-amz-date": "yesterday"}),
        403,
        "AccessDenied",
        before=(there,),
    ),
    Case(
        _V4,
        "no payload hash",
        _get(later={"x-amz-content-sha256": "(none)"}),
        400,
        "InvalidRequest",
        before=(there,),
    ),
    Case(
        _V4,
        "a header that was changed",
        _put(headers={"x-amz-meta-a": "1"}, later={"x-amz-meta-a": "2"}),
        403,
        "SignatureDoesNotMatch",
        then=_nothing,
    ),
    Case(
        _V4,
        "a header that was added",
        _put(later={"x-amz-acl": "public-read"}),
        403,
        "AccessDenied",
        then=_nothing,
    ),
    Case(
        _V4,
        "a header that is not signed",
        _put(headers={"x-amz-meta-a": "1"}, leave_out=("x-amz-meta-a",)),
        403,
        "AccessDenied",
        then=_nothing,
    ),
    Case(_V4, "the host is not signed", _get(leave_out=("host",)), 403, "AccessDenied", before=(there,)),
    Case(
        _V4,
        "a signature that was changed",
        _authorization(lambda text: text[:-1] + ("0" if text[-1] != "0" else "1")),
        403,
        "SignatureDoesNotMatch",
        before=(there,),
    ),
    Case(
        _V4,
        "a signature that is missing",
        _authorization(lambda text: text.partition(", Signature")[0]),
        400,
        "AuthorizationHeaderMalformed",
        before=(there,),
    ),
    Case(
        _V4,
        "a credential that is missing",
        _authorization(lambda text: text.replace("Credential=", "Cred=")),
        400,
        "AuthorizationHeaderMalformed",
        before=(there,),
    ),
    Case(
        _V4,
        "a credential without its parts",
        _authorization(lambda text: text.replace("/us-east-1", "")),
        400,
        "AuthorizationHeaderMalformed",
        before=(there,),
    ),
    Case(
        _V4,
        "a scheme that is unknown",
        _authorization(lambda text: text.replace("AWS4", "AWS9")),
        400,
        "InvalidArgument",
        before=(there,),
    ),
    Case(
        _V4,
        "another method than was signed",
        lambda s: _with_method(s, "DELETE"),
        403,
        "SignatureDoesNotMatch",
        before=(there,),
        then=lambda s, a: (s.read(s.there), CONTENT),
    ),
    Case(
        _V4,
        "another key than was signed",
        lambda s: _with_path(s),
        403,
        "SignatureDoesNotMatch",
        before=(there,),
    ),
    Case(
        _V4,
        "a parameter that was added",
        lambda s: _with_path(s, f"{s.path(s.there)}?response-content-type=text/html"),
        403,
        "SignatureDoesNotMatch",
        before=(there,),
    ),
    Case(_V2, "a right one", _old(), before=(there,), then=_whole),
    Case(
        _V2,
        "headers are signed",
        _old("PUT", key="key", x_amz_meta_a="1", content_type="text/plain"),
        then=lambda s, a: (s.dev.head_object(Key=s.key)["Metadata"], {"a": "1"}),
    ),
    Case(_V2, "its date in a header of its own", _old(x_amz_date=http_date()), before=(there,), then=_whole),
    Case(_V2, "a wrong secret", _old(secret="wrong"), 403, "SignatureDoesNotMatch", before=(there,)),
    Case(
        _V2,
        "a wrong secret writes nothing",
        _old("PUT", secret="wrong", key="key"),
        403,
        "SignatureDoesNotMatch",
        then=_nothing,
    ),
    Case(
        _V2,
        "a clock 20 minutes behind",
        _old(date=http_date(-20 * _MINUTES)),
        403,
        "RequestTimeTooSkewed",
        before=(there,),
    ),
    Case(_V2, "no date", _old(date="none"), 403, "AccessDenied", before=(there,)),
    Case(
        _V2,
        "no signature",
        lambda s: s.target.send(
            "GET", s.path(s.there), {"host": s.target.host, "date": http_date(), "authorization": "AWS x"}
        ),
        400,
        "InvalidArgument",
        before=(there,),
    ),
    Case(
        _NONE,
        "the list of buckets",
        lambda s: s.target.send("GET", "/", {"host": s.target.host}),
        403,
        "AccessDenied",
    ),
    Case(
        _NONE,
        "an object",
        lambda s: s.target.send("GET", s.path(s.there), {"host": s.target.host}),
        403,
        "AccessDenied",
        before=(there,),
    ),
    Case(
        _NONE,
        "a public object",
        lambda s: (
            s.dev.put_object_acl(Key=s.there, ACL="public-read"),
            s.target.send("GET", s.path(s.there), {"host": s.target.host}),
        )[1],
        before=(there,),
        then=_whole,
    ),
    Case(
        _NONE,
        "a missing bucket",
        lambda s: s.target.send("GET", "/conf-missing/x", {"host": s.target.host}),
        404,
        "NoSuchBucket",
    ),
    Case(
        _NONE,
        "an error has a code, a resource and a number",
        lambda s: s.target.send("GET", s.path(s.there), {"host": s.target.host}),
        403,
        "AccessDenied",
        then=lambda s, a: (
            (
                a.headers.get("content-type"),
                bool(a.text_of("RequestId")),
                a.text_of("RequestId") == a.headers.get("x-amz-request-id"),
            ),
            ("application/xml", True, True),
        ),
    ),
]


def _with_method(stage: Stage, method: str) -> Answer:
    signed = sign_v4(
        stage.target.keys["dev"],
        "GET",
        stage.path(stage.there),
        [],
        {"host": stage.target.host},
        EMPTY_SHA256,
    )
    return stage.target.send(method, stage.path(stage.there), signed)


def _with_path(stage: Stage, path: str = "") -> Answer:
    signed = sign_v4(
        stage.target.keys["dev"],
        "GET",
        stage.path(stage.there),
        [],
        {"host": stage.target.host},
        EMPTY_SHA256,
    )
    return stage.target.send("GET", path or stage.path(stage.there) + "x", signed)
