"""Buckets in the host name, and clients that ask before they send."""

from __future__ import annotations

from typing import Any

from s3_table.case import Answer, Case
from s3_table.signing import EMPTY_SHA256, UNSIGNED, presign_v4, sign_old, sign_v4
from s3_table.stage import CONTENT, MISSING, Stage, there

__all__ = ["CASES"]

_HOST, _EXPECT = "Virtual-host style", "Expect: 100-continue"


def _host(stage: Stage, bucket: str = "") -> str:
    return f"{bucket or stage.bucket}.localhost:{stage.target.host.rpartition(':')[2]}"


def _send(method: str, key: str = "there", bucket: str = "", body: bytes = b"") -> Any:
    """A request signed with V4 whose path has no bucket."""

    def call(stage: Stage) -> Answer:
        path = "/" + getattr(stage, key) if key else "/"
        headers = sign_v4(
            stage.target.keys["dev"],
            method,
            path,
            [],
            {"host": _host(stage, bucket)},
            UNSIGNED if body else EMPTY_SHA256,
        )
        if body:
            headers["content-length"] = str(len(body))
        return stage.target.send(method, path, headers, body)

    return call


def _old(stage: Stage) -> Answer:
    resource = stage.path(stage.there)
    headers = sign_old(stage.target.keys["dev"], "AWS", "GET", resource, {})
    return stage.target.send("GET", "/" + stage.there, {"host": _host(stage), **headers})


def _presigned(stage: Stage) -> Answer:
    url = presign_v4(stage.target.keys["dev"], "GET", "/" + stage.there, _host(stage))
    return stage.target.send("GET", url, {"host": _host(stage)})


def _whole(s: Stage, a: Answer) -> tuple[object, object]:
    return a.body, CONTENT


CASES = [
    Case(_HOST, "GET", _send("GET"), before=(there,), then=_whole),
    Case(_HOST, "PUT", _send("PUT", "key", body=b"x"), then=lambda s, a: (s.read(s.key), b"x")),
    Case(
        _HOST,
        "DELETE",
        _send("DELETE"),
        204,
        before=(there,),
        then=lambda s, a: (s.dev.head_object(Key=s.there).status, 404),
    ),
    Case(_HOST, "the list of a bucket", _send("GET", ""), then=lambda s, a: (a.text_of("Name"), s.bucket)),
    Case(_HOST, "V2", _old, before=(there,), then=_whole),
    Case(_HOST, "a presigned URL", _presigned, before=(there,), then=_whole),
    Case(_HOST, "a missing bucket", _send("GET", bucket=MISSING), 404, "NoSuchBucket"),
    Case(_HOST, "a missing key", _send("GET"), 404, "NoSuchKey"),
    Case(
        _HOST,
        "anonymous",
        lambda s: s.target.send("GET", "/" + s.there, {"host": _host(s)}),
        403,
        "AccessDenied",
        before=(there,),
    ),
    Case(
        _EXPECT,
        "a body that is wanted",
        lambda s: s.raw("PUT", s.path(s.key), body=b"x", later={"expect": "100-continue"}),
        then=lambda s, a: (s.read(s.key), b"x"),
    ),
    Case(
        _EXPECT,
        "a body that nobody wants",
        lambda s: s.raw(
            "PUT", f"/{MISSING}/key", later={"expect": "100-continue", "content-length": "1000000"}
        ),
        404,
        "NoSuchBucket",
    ),
]
