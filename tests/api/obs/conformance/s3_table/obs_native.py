"""What only OBS has: its own signature and headers, objects that grow, renames, metadata changed in place."""

from __future__ import annotations

import hashlib
from typing import Any

from s3_table.case import Answer, Case
from s3_table.presigned import old_url
from s3_table.signing import KeyPair, http_date, sign_old
from s3_table.stage import CONTENT, FOREIGN, MISSING, SHARED, Stage, there

__all__ = ["CASES"]

# Parameters that belong to what is signed.
_SIGNED = ("append", "metadata", "name", "position", "rename", "acl", "uploads", "tagging")


def _obs(
    stage: Stage,
    method: str,
    key: str = "",
    *,
    bucket: str = "",
    query: dict[str, str] | None = None,
    body: bytes = b"",
    user: str = "dev",
    secret: str = "",
    date: str = "",
    **headers: str,
) -> Answer:
    """A request with OBS's own signature."""
    path = stage.path(key, bucket) if key else f"/{bucket or stage.bucket}/"
    pairs = query or {}
    parts = [f"{name}={value}" if value else name for name, value in sorted(pairs.items())]
    signed = [part for part in parts if part.partition("=")[0] in _SIGNED]
    pair = stage.target.keys[user]
    pair = KeyPair(pair.access_key, secret or pair.secret_key)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    whole = sign_old(pair, "OBS", method, path + ("?" + "&".join(signed) if signed else ""), sent, date)
    if method in ("PUT", "POST"):
        whole["content-length"] = str(len(body))
    target = path + ("?" + "&".join(parts) if parts else "")
    return stage.target.send(method, target, {"host": stage.target.host, **whole}, body)


def _append(position: int | str, body: bytes = b"more", key: str = "key", **more: Any) -> Any:
    return lambda s: _obs(
        s, "POST", getattr(s, key), query={"append": "", "position": str(position)}, body=body, **more
    )


def growing(stage: Stage) -> None:
    """An object that grows, of four bytes."""
    answer = _append(0, b"abcd", x_obs_meta_a="1")(stage)
    if answer.status != 200:
        raise AssertionError(f"nothing to append to: {answer.status} {answer.code}")


def _rename(target: str, key: str = "there", **more: Any) -> Any:
    return lambda s: _obs(
        s, "POST", getattr(s, key, key), query={"rename": "", "name": target.format(s=s)}, **more
    )


def _set(directive: str = "", key: str = "there", **headers: str) -> Any:
    named = {"x_obs_metadata_directive": directive} if directive else {}
    return lambda s: _obs(s, "PUT", getattr(s, key), query={"metadata": ""}, **named, **headers)


def described(stage: Stage) -> None:
    """An object with metadata and a type."""
    stage.dev.put_object(Key=stage.there, Body=CONTENT, Metadata={"a": "1"}, ContentType="text/plain")


def folder(stage: Stage) -> None:
    """Two objects in a folder."""
    for name in ("old/1", "old/sub/2"):
        stage.dev.put_object(Key=stage.k(name), Body=name.encode())


def _metadata(stage: Stage) -> tuple[object, object]:
    answer = stage.dev.head_object(Key=stage.there)
    return answer["Metadata"], answer["ContentType"]


def _keys(stage: Stage) -> list[str]:
    page = stage.dev.list_objects_v2(Prefix=stage.prefix)
    return [entry["Key"].removeprefix(stage.prefix) for entry in page.get("Contents", [])]


def _nothing(s: Stage, a: Answer) -> tuple[object, object]:
    return s.dev.head_object(Key=s.key).status, 404


_N, _U, _A, _R, _M = "OBS signature", "OBS presigned URL", "AppendObject", "RenameObject", "SetObjectMetadata"
_LATE = -20 * 60.0

CASES = [
    Case(
        "Negotiation (?apiversion)",
        "the service",
        lambda s: s.target.send("HEAD", "/?apiversion", {"host": s.target.host}),
        then=lambda s, a: (a.headers.get("x-obs-api"), "3.0"),
    ),
    Case(
        "Negotiation (?apiversion)",
        "a bucket",
        lambda s: s.target.send("HEAD", f"/{s.bucket}?apiversion", {"host": s.target.host}),
        then=lambda s, a: (a.headers.get("x-obs-api"), "3.0"),
    ),
    Case(
        _N,
        "PUT with metadata",
        lambda s: _obs(s, "PUT", s.key, body=b"x", content_type="text/plain", x_obs_meta_a="1"),
        then=lambda s, a: (s.dev.head_object(Key=s.key)["Metadata"], {"a": "1"}),
    ),
    Case(
        _N,
        "GET tells in OBS's words",
        lambda s: _obs(s, "GET", s.there),
        before=(described,),
        then=lambda s, a: (
            (a.body, a.headers.get("x-obs-meta-a"), a.headers.get("x-amz-meta-a")),
            (CONTENT, "1", None),
        ),
    ),
    Case(
        _N,
        "the list of a bucket",
        lambda s: _obs(s, "GET", query={"prefix": s.prefix}),
        before=(there,),
        then=lambda s, a: (a.text_of("Key"), s.there),
    ),
    Case(
        _N,
        "a bucket's head",
        lambda s: _obs(s, "HEAD"),
        then=lambda s, a: (a.headers.get("x-obs-version"), "3.0"),
    ),
    Case(
        _N,
        "a copy",
        lambda s: _obs(s, "PUT", s.key, x_obs_copy_source=f"/{s.bucket}/{s.there}"),
        before=(there,),
        then=lambda s, a: (s.read(s.key), CONTENT),
    ),
    Case(
        _N,
        "an ACL",
        lambda s: _obs(s, "PUT", s.there, query={"acl": ""}, x_obs_acl="public-read"),
        before=(there,),
        then=lambda s, a: (s.nobody.get_object(Key=s.there).body, CONTENT),
    ),
    Case(
        _N,
        "a storage class of OBS",
        lambda s: _obs(s, "PUT", s.key, body=b"x", x_obs_storage_class="WARM"),
        then=lambda s, a: (_obs(s, "HEAD", s.key).headers.get("x-obs-storage-class"), "WARM"),
    ),
    Case(
        _N,
        "a date in its own header",
        lambda s: _obs(s, "GET", s.there, x_obs_date=http_date()),
        before=(there,),
        then=lambda s, a: (a.body, CONTENT),
    ),
    Case(
        _N,
        "DELETE",
        lambda s: _obs(s, "DELETE", s.there),
        204,
        before=(there,),
        then=lambda s, a: (_keys(s), []),
    ),
    Case(
        _N,
        "a wrong secret",
        lambda s: _obs(s, "GET", s.there, secret="wrong"),
        403,
        "SignatureDoesNotMatch",
        before=(there,),
    ),
    Case(
        _N,
        "a wrong secret writes nothing",
        lambda s: _obs(s, "PUT", s.key, body=b"x", secret="wrong"),
        403,
        "SignatureDoesNotMatch",
        then=_nothing,
    ),
    Case(
        _N,
        "a clock 20 minutes behind",
        lambda s: _obs(s, "GET", s.there, date=http_date(_LATE)),
        403,
        "RequestTimeTooSkewed",
        before=(there,),
    ),
    Case(_N, "no date", lambda s: _obs(s, "GET", s.there, date="none"), 403, "AccessDenied", before=(there,)),
    Case(
        _N,
        "no signature",
        lambda s: s.target.send(
            "GET", s.path(s.there), {"host": s.target.host, "date": http_date(), "authorization": "OBS x"}
        ),
        400,
        "InvalidArgument",
        before=(there,),
    ),
    Case(
        _N,
        "a missing key",
        lambda s: _obs(s, "GET", s.there),
        404,
        "NoSuchKey",
        then=lambda s, a: (a.text_of("RequestId"), a.headers.get("x-obs-request-id")),
    ),
    Case(_N, "a missing bucket", lambda s: _obs(s, "GET", "x", bucket=MISSING), 404, "NoSuchBucket"),
    Case(
        _N, "somebody else's object", lambda s: _obs(s, "GET", "secret", bucket=FOREIGN), 403, "AccessDenied"
    ),
    Case(
        _N,
        "a wrong Content-MD5",
        lambda s: _obs(s, "PUT", s.key, body=b"x", content_md5="AAAAAAAAAAAAAAAAAAAAAA=="),
        400,
        "BadDigest",
        then=_nothing,
    ),
    Case(
        _N,
        "a storage class that is unknown",
        lambda s: _obs(s, "PUT", s.key, body=b"x", x_obs_storage_class="FAST"),
        400,
        "InvalidStorageClass",
        then=_nothing,
    ),
    Case(
        _U,
        "GET",
        lambda s: s.target.send("GET", old_url(s, word="OBS"), {"host": s.target.host}),
        before=(there,),
        then=lambda s, a: (a.body, CONTENT),
    ),
    Case(
        _U,
        "PUT",
        lambda s: s.target.send(
            "PUT", old_url(s, "PUT", "key", word="OBS"), {"host": s.target.host, "content-length": "1"}, b"x"
        ),
        then=lambda s, a: (s.read(s.key), b"x"),
    ),
    Case(
        _U,
        "expired",
        lambda s: s.target.send("GET", old_url(s, seconds=-5, word="OBS"), {"host": s.target.host}),
        403,
        "AccessDenied",
        before=(there,),
    ),
    Case(
        _U,
        "of another method",
        lambda s: s.target.send("DELETE", old_url(s, word="OBS"), {"host": s.target.host}),
        403,
        "SignatureDoesNotMatch",
        before=(there,),
        then=lambda s, a: (s.read(s.there), CONTENT),
    ),
    Case(
        _U,
        "another key than was signed",
        lambda s: s.target.send(
            "GET", old_url(s, word="OBS").replace("/there?", "/their?"), {"host": s.target.host}
        ),
        403,
        "SignatureDoesNotMatch",
        before=(there,),
    ),
    Case(
        _A,
        "a new object",
        _append(0),
        then=lambda s, a: ((s.read(s.key), a.headers.get("x-obs-next-append-position")), (b"more", "4")),
    ),
    Case(
        _A,
        "behind what is there",
        _append(4),
        before=(growing,),
        then=lambda s, a: ((s.read(s.key), a.headers.get("x-obs-next-append-position")), (b"abcdmore", "8")),
    ),
    Case(
        _A,
        "keeps the metadata of its beginning",
        _append(4),
        before=(growing,),
        then=lambda s, a: (s.dev.head_object(Key=s.key)["Metadata"], {"a": "1"}),
    ),
    Case(
        _A,
        "its kind is told",
        lambda s: _obs(s, "HEAD", s.key),
        before=(growing,),
        then=lambda s, a: (
            (a.headers.get("x-obs-object-type"), a.headers.get("x-obs-next-append-position")),
            ("Appendable", "4"),
        ),
    ),
    Case(
        _A,
        "before the end",
        _append(2),
        409,
        "PositionNotEqualToLength",
        before=(growing,),
        then=lambda s, a: (s.read(s.key), b"abcd"),
    ),
    Case(
        _A,
        "behind the end",
        _append(5),
        409,
        "PositionNotEqualToLength",
        before=(growing,),
        then=lambda s, a: (s.read(s.key), b"abcd"),
    ),
    Case(
        _A,
        "where nothing is, but not at the beginning",
        _append(5),
        409,
        "PositionNotEqualToLength",
        then=_nothing,
    ),
    Case(
        _A,
        "to an object that does not grow",
        _append(10, key="there"),
        409,
        "ObjectNotAppendable",
        before=(there,),
        then=lambda s, a: (s.read(s.there), CONTENT),
    ),
    Case(
        _A,
        "a position that is no number",
        _append("x"),
        400,
        "InvalidArgument",
        before=(growing,),
        then=lambda s, a: (s.read(s.key), b"abcd"),
    ),
    Case(_A, "a position below zero", _append(-1), 400, "InvalidArgument", before=(growing,)),
    Case(
        _A,
        "no position",
        lambda s: _obs(s, "POST", s.key, query={"append": ""}, body=b"x"),
        400,
        "InvalidArgument",
        before=(growing,),
    ),
    Case(
        _A,
        "a wrong Content-MD5",
        _append(4, content_md5="AAAAAAAAAAAAAAAAAAAAAA=="),
        400,
        "BadDigest",
        before=(growing,),
        then=lambda s, a: (s.read(s.key), b"abcd"),
    ),
    Case(
        _A,
        "an object that was overwritten grows no more",
        lambda s: (s.dev.put_object(Key=s.key, Body=b"new"), _append(3)(s))[1],
        409,
        "ObjectNotAppendable",
        before=(growing,),
        then=lambda s, a: (s.read(s.key), b"new"),
        is_harmless=False,
    ),
    Case(
        _A,
        "a copy grows no more",
        lambda s: (
            s.dev.copy_object(Key=s.there, CopySource=f"{s.bucket}/{s.key}"),
            _append(4, key="there")(s),
        )[1],
        409,
        "ObjectNotAppendable",
        before=(growing,),
        then=lambda s, a: (s.read(s.there), b"abcd"),
        is_harmless=False,
    ),
    Case(
        _A,
        "a copy keeps its bytes",
        lambda s: (s.dev.copy_object(Key=s.there, CopySource=f"{s.bucket}/{s.key}"), _append(4)(s))[1],
        before=(growing,),
        then=lambda s, a: ((s.read(s.there), s.read(s.key)), (b"abcd", b"abcdmore")),
    ),
    Case(_A, "a missing bucket", _append(0, bucket=MISSING), 404, "NoSuchBucket"),
    Case(_A, "somebody else's bucket", _append(0, bucket=FOREIGN), 403, "AccessDenied"),
    Case(
        _A,
        "one who may only read",
        _append(4, user="viewer"),
        403,
        "AccessDenied",
        before=(growing,),
        then=lambda s, a: (s.read(s.key), b"abcd"),
    ),
    Case(
        _R,
        "an object",
        _rename("{s.prefix}new"),
        204,
        before=(described,),
        then=lambda s, a: (
            (_keys(s), s.read(s.k("new")), s.dev.head_object(Key=s.k("new"))["Metadata"]),
            (["new"], CONTENT, {"a": "1"}),
        ),
    ),
    Case(
        _R,
        "a folder with all that lies in it",
        lambda s: _obs(s, "POST", s.k("old/"), query={"rename": "", "name": s.k("new/")}),
        204,
        before=(folder,),
        then=lambda s, a: ((_keys(s), s.read(s.k("new/sub/2"))), (["new/1", "new/sub/2"], b"old/sub/2")),
    ),
    Case(_R, "a missing key", _rename("{s.prefix}new"), 404, "NoSuchKey"),
    Case(
        _R,
        "onto another object",
        lambda s: (s.dev.put_object(Key=s.key, Body=b"mine"), _rename("{s.key}")(s))[1],
        409,
        "OperationAborted",
        before=(there,),
        then=lambda s, a: ((s.read(s.key), s.read(s.there)), (b"mine", CONTENT)),
        is_harmless=False,
    ),
    Case(
        _R,
        "no name",
        lambda s: _obs(s, "POST", s.there, query={"rename": ""}),
        400,
        "InvalidArgument",
        before=(there,),
    ),
    Case(_R, "a name of 1,025 bytes", _rename("k" * 1025), 400, "KeyTooLongError", before=(there,)),
    Case(
        _R,
        "one who may only read",
        _rename("{s.prefix}new", user="viewer"),
        403,
        "AccessDenied",
        before=(there,),
    ),
    Case(
        _R,
        "somebody else's object",
        lambda s: _obs(s, "POST", "secret", bucket=FOREIGN, query={"rename": "", "name": "x"}),
        403,
        "AccessDenied",
    ),
    Case(
        _M,
        "all of it",
        _set("REPLACE", x_obs_meta_b="2", content_type="text/html"),
        before=(described,),
        then=lambda s, a: (_metadata(s), ({"b": "2"}, "text/html")),
    ),
    Case(
        _M,
        "what is named",
        _set("REPLACE_NEW", x_obs_meta_b="2"),
        before=(described,),
        then=lambda s, a: (_metadata(s), ({"a": "1", "b": "2"}, "text/plain")),
    ),
    Case(
        _M,
        "leaves the bytes as they are",
        _set("REPLACE_NEW", x_obs_meta_b="2"),
        before=(described,),
        then=lambda s, a: (hashlib.md5(s.read(s.there)).hexdigest(), hashlib.md5(CONTENT).hexdigest()),
    ),
    Case(
        _M,
        "a directive that is unknown",
        _set("MERGE", x_obs_meta_b="2"),
        400,
        "InvalidArgument",
        before=(described,),
        then=lambda s, a: (_metadata(s), ({"a": "1"}, "text/plain")),
    ),
    Case(_M, "a missing key", _set("REPLACE"), 404, "NoSuchKey"),
    Case(
        _M,
        "more than 2 KB",
        _set("REPLACE", x_obs_meta_b="x" * 2048),
        400,
        "MetadataTooLarge",
        before=(described,),
        then=lambda s, a: (_metadata(s), ({"a": "1"}, "text/plain")),
    ),
    Case(
        _M,
        "somebody else's object",
        lambda s: _obs(s, "PUT", "secret", bucket=FOREIGN, query={"metadata": ""}),
        403,
        "AccessDenied",
    ),
    Case(
        "ListBuckets",
        "in OBS's words",
        lambda s: s.target.send(
            "GET", "/", {"host": s.target.host, **sign_old(s.target.keys["dev"], "OBS", "GET", "/", {})}
        ),
        then=lambda s, a: (SHARED.encode() in a.body and b"obs" in a.body, True),
    ),
]
