"""What only OBS has: objects that grow, renames, metadata changed in place."""

from __future__ import annotations

import hashlib
from typing import Any

from s3_table.case import Case
from s3_table.obs_steps import APPEND, METADATA, RENAME, described, keys, nothing, obs
from s3_table.stage import CONTENT, FOREIGN, MISSING, Stage, there

__all__ = ["CASES"]


def _append(position: int | str, body: bytes = b"more", key: str = "key", **more: Any) -> Any:
    return lambda s: obs(
        s, "POST", getattr(s, key), query={"append": "", "position": str(position)}, body=body, **more
    )


def growing(stage: Stage) -> None:
    """An object that grows, of four bytes."""
    answer = _append(0, b"abcd", x_obs_meta_a="1")(stage)
    if answer.status != 200:
        raise AssertionError(f"nothing to append to: {answer.status} {answer.code}")


def _rename(target: str, key: str = "there", **more: Any) -> Any:
    return lambda s: obs(
        s, "POST", getattr(s, key, key), query={"rename": "", "name": target.format(s=s)}, **more
    )


def _set(directive: str = "", key: str = "there", **headers: str) -> Any:
    named = {"x_obs_metadata_directive": directive} if directive else {}
    return lambda s: obs(s, "PUT", getattr(s, key), query={"metadata": ""}, **named, **headers)


def folder(stage: Stage) -> None:
    """Two objects in a folder."""
    for name in ("old/1", "old/sub/2"):
        stage.dev.put_object(Key=stage.k(name), Body=name.encode())


def _metadata(stage: Stage) -> tuple[object, object]:
    answer = stage.dev.head_object(Key=stage.there)
    return answer["Metadata"], answer["ContentType"]


CASES = [
    Case(
        APPEND,
        "a new object",
        _append(0),
        then=lambda s, a: ((s.read(s.key), a.headers.get("x-obs-next-append-position")), (b"more", "4")),
    ),
    Case(
        APPEND,
        "behind what is there",
        _append(4),
        before=(growing,),
        then=lambda s, a: ((s.read(s.key), a.headers.get("x-obs-next-append-position")), (b"abcdmore", "8")),
    ),
    Case(
        APPEND,
        "keeps the metadata of its beginning",
        _append(4),
        before=(growing,),
        then=lambda s, a: (s.dev.head_object(Key=s.key)["Metadata"], {"a": "1"}),
    ),
    Case(
        APPEND,
        "its kind is told",
        lambda s: obs(s, "HEAD", s.key),
        before=(growing,),
        then=lambda s, a: (
            (a.headers.get("x-obs-object-type"), a.headers.get("x-obs-next-append-position")),
            ("Appendable", "4"),
        ),
    ),
    Case(
        APPEND,
        "before the end",
        _append(2),
        409,
        "PositionNotEqualToLength",
        before=(growing,),
        then=lambda s, a: (s.read(s.key), b"abcd"),
    ),
    Case(
        APPEND,
        "behind the end",
        _append(5),
        409,
        "PositionNotEqualToLength",
        before=(growing,),
        then=lambda s, a: (s.read(s.key), b"abcd"),
    ),
    Case(
        APPEND,
        "where nothing is, but not at the beginning",
        _append(5),
        409,
        "PositionNotEqualToLength",
        then=nothing,
    ),
    Case(
        APPEND,
        "to an object that does not grow",
        _append(10, key="there"),
        409,
        "ObjectNotAppendable",
        before=(there,),
        then=lambda s, a: (s.read(s.there), CONTENT),
    ),
    Case(
        APPEND,
        "a position that is no number",
        _append("x"),
        400,
        "InvalidArgument",
        before=(growing,),
        then=lambda s, a: (s.read(s.key), b"abcd"),
    ),
    Case(APPEND, "a position below zero", _append(-1), 400, "InvalidArgument", before=(growing,)),
    Case(
        APPEND,
        "no position",
        lambda s: obs(s, "POST", s.key, query={"append": ""}, body=b"x"),
        400,
        "InvalidArgument",
        before=(growing,),
    ),
    Case(
        APPEND,
        "a wrong Content-MD5",
        _append(4, content_md5="AAAAAAAAAAAAAAAAAAAAAA=="),
        400,
        "BadDigest",
        before=(growing,),
        then=lambda s, a: (s.read(s.key), b"abcd"),
    ),
    Case(
        APPEND,
        "an object that was overwritten grows no more",
        lambda s: (s.dev.put_object(Key=s.key, Body=b"new"), _append(3)(s))[1],
        409,
        "ObjectNotAppendable",
        before=(growing,),
        then=lambda s, a: (s.read(s.key), b"new"),
        is_harmless=False,
    ),
    Case(
        APPEND,
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
        APPEND,
        "a copy keeps its bytes",
        lambda s: (s.dev.copy_object(Key=s.there, CopySource=f"{s.bucket}/{s.key}"), _append(4)(s))[1],
        before=(growing,),
        then=lambda s, a: ((s.read(s.there), s.read(s.key)), (b"abcd", b"abcdmore")),
    ),
    Case(APPEND, "a missing bucket", _append(0, bucket=MISSING), 404, "NoSuchBucket"),
    Case(APPEND, "somebody else's bucket", _append(0, bucket=FOREIGN), 403, "AccessDenied"),
    Case(
        APPEND,
        "one who may only read",
        _append(4, user="viewer"),
        403,
        "AccessDenied",
        before=(growing,),
        then=lambda s, a: (s.read(s.key), b"abcd"),
    ),
    Case(
        RENAME,
        "an object",
        _rename("{s.prefix}new"),
        204,
        before=(described,),
        then=lambda s, a: (
            (keys(s), s.read(s.k("new")), s.dev.head_object(Key=s.k("new"))["Metadata"]),
            (["new"], CONTENT, {"a": "1"}),
        ),
    ),
    Case(
        RENAME,
        "a folder with all that lies in it",
        lambda s: obs(s, "POST", s.k("old/"), query={"rename": "", "name": s.k("new/")}),
        204,
        before=(folder,),
        then=lambda s, a: ((keys(s), s.read(s.k("new/sub/2"))), (["new/1", "new/sub/2"], b"old/sub/2")),
    ),
    Case(RENAME, "a missing key", _rename("{s.prefix}new"), 404, "NoSuchKey"),
    Case(
        RENAME,
        "onto another object",
        lambda s: (s.dev.put_object(Key=s.key, Body=b"mine"), _rename("{s.key}")(s))[1],
        409,
        "OperationAborted",
        before=(there,),
        then=lambda s, a: ((s.read(s.key), s.read(s.there)), (b"mine", CONTENT)),
        is_harmless=False,
    ),
    Case(
        RENAME,
        "no name",
        lambda s: obs(s, "POST", s.there, query={"rename": ""}),
        400,
        "InvalidArgument",
        before=(there,),
    ),
    Case(RENAME, "a name of 1,025 bytes", _rename("k" * 1025), 400, "KeyTooLongError", before=(there,)),
    Case(
        RENAME,
        "one who may only read",
        _rename("{s.prefix}new", user="viewer"),
        403,
        "AccessDenied",
        before=(there,),
    ),
    Case(
        RENAME,
        "somebody else's object",
        lambda s: obs(s, "POST", "secret", bucket=FOREIGN, query={"rename": "", "name": "x"}),
        403,
        "AccessDenied",
    ),
    Case(
        METADATA,
        "all of it",
        _set("REPLACE", x_obs_meta_b="2", content_type="text/html"),
        before=(described,),
        then=lambda s, a: (_metadata(s), ({"b": "2"}, "text/html")),
    ),
    Case(
        METADATA,
        "what is named",
        _set("REPLACE_NEW", x_obs_meta_b="2"),
        before=(described,),
        then=lambda s, a: (_metadata(s), ({"a": "1", "b": "2"}, "text/plain")),
    ),
    Case(
        METADATA,
        "leaves the bytes as they are",
        _set("REPLACE_NEW", x_obs_meta_b="2"),
        before=(described,),
        then=lambda s, a: (hashlib.md5(s.read(s.there)).hexdigest(), hashlib.md5(CONTENT).hexdigest()),
    ),
    Case(
        METADATA,
        "a directive that is unknown",
        _set("MERGE", x_obs_meta_b="2"),
        400,
        "InvalidArgument",
        before=(described,),
        then=lambda s, a: (_metadata(s), ({"a": "1"}, "text/plain")),
    ),
    Case(METADATA, "a missing key", _set("REPLACE"), 404, "NoSuchKey"),
    Case(
        METADATA,
        "more than 2 KB",
        _set("REPLACE", x_obs_meta_b="x" * 2048),
        400,
        "MetadataTooLarge",
        before=(described,),
        then=lambda s, a: (_metadata(s), ({"a": "1"}, "text/plain")),
    ),
    Case(
        METADATA,
        "somebody else's object",
        lambda s: obs(s, "PUT", "secret", bucket=FOREIGN, query={"metadata": ""}),
        403,
        "AccessDenied",
    ),
]
