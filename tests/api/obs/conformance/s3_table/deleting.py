"""DeleteObject and DeleteObjects."""

from __future__ import annotations

import hashlib
from typing import Any

from s3_table.case import Answer, Case
from s3_table.stage import CONTENT, FOREIGN, MISSING, Stage, there

__all__ = ["CASES"]

_ETAG = f'"{hashlib.md5(b"x").hexdigest()}"'


def three(stage: Stage) -> None:
    """Three objects."""
    for name in "abc":
        stage.dev.put_object(Key=stage.k(name), Body=b"x")


def _left(stage: Stage) -> list[str]:
    page = stage.dev.list_objects_v2(Prefix=stage.prefix)
    return [entry["Key"].removeprefix(stage.prefix) for entry in page.get("Contents", [])]


def _gone(s: Stage, a: Answer) -> tuple[object, object]:
    return s.dev.head_object(Key=s.there).status, 404


def _stays(s: Stage, a: Answer) -> tuple[object, object]:
    return s.read(s.there), CONTENT


def _many(*names: str, quiet: bool = False, **more: Any) -> Any:
    return lambda s: s.dev.delete_objects(
        Delete={"Objects": [{"Key": s.k(name)} for name in names], "Quiet": quiet}, **more
    )


def _document(body: bytes, **headers: str) -> Any:
    return lambda s: s.raw("POST", f"/{s.bucket}", query=[("delete", "")], body=body, headers=headers)


CASES = [
    Case(
        "DeleteObject",
        "one that is there",
        lambda s: s.dev.delete_object(Key=s.there),
        204,
        before=(there,),
        then=_gone,
    ),
    Case("DeleteObject", "one that is gone already", lambda s: s.dev.delete_object(Key=s.there), 204),
    Case(
        "DeleteObject",
        "one of two whose keys begin alike",
        lambda s: s.dev.delete_object(Key=s.k("a")),
        204,
        before=(three, lambda s: s.notes.update(a=s.dev.put_object(Key=s.k("a/b"), Body=b"x"))),
        then=lambda s, a: (_left(s), ["a/b", "b", "c"]),
    ),
    Case(
        "DeleteObject",
        "a missing bucket",
        lambda s: s.dev.delete_object(Bucket=MISSING, Key="x"),
        404,
        "NoSuchBucket",
    ),
    Case(
        "DeleteObject",
        "somebody else's object",
        lambda s: s.dev.delete_object(Bucket=FOREIGN, Key="secret"),
        403,
        "AccessDenied",
    ),
    Case(
        "DeleteObject",
        "one who may only read",
        lambda s: s.viewer.delete_object(Key=s.there),
        403,
        "AccessDenied",
        before=(there,),
        then=_stays,
    ),
    Case(
        "DeleteObject",
        "anonymous",
        lambda s: s.nobody.delete_object(Key=s.there),
        403,
        "AccessDenied",
        before=(there,),
        then=_stays,
    ),
    Case(
        "DeleteObject",
        "If-Match that holds",
        lambda s: s.dev.delete_object(Key=s.there, IfMatch=s.notes["etag"]),
        204,
        before=(there,),
        then=_gone,
    ),
    Case(
        "DeleteObject",
        "If-Match of another",
        lambda s: s.dev.delete_object(Key=s.there, IfMatch='"0"'),
        412,
        "PreconditionFailed",
        before=(there,),
        then=_stays,
    ),
    Case(
        "DeleteObject",
        "a condition that only directory buckets know",
        lambda s: s.dev.delete_object(Key=s.there, IfMatchSize=3),
        501,
        "NotImplemented",
        before=(there,),
        then=_stays,
    ),
    Case(
        "DeleteObjects",
        "each with its ETag",
        lambda s: s.dev.delete_objects(
            Delete={"Objects": [{"Key": s.k("a"), "ETag": _ETAG}, {"Key": s.k("b"), "ETag": '"0"'}]}
        ),
        before=(three,),
        then=lambda s, a: (
            (_left(s), [(entry["Key"], entry["Code"]) for entry in a.get("Errors", [])]),
            (["b", "c"], [(s.k("b"), "PreconditionFailed")]),
        ),
    ),
    Case(
        "DeleteObjects",
        "several at once",
        _many("a", "c"),
        before=(three,),
        then=lambda s, a: (
            (_left(s), sorted(entry["Key"] for entry in a["Deleted"])),
            (["b"], [s.k("a"), s.k("c")]),
        ),
    ),
    Case(
        "DeleteObjects",
        "one that is gone already counts as deleted",
        _many("a", "z"),
        before=(three,),
        then=lambda s, a: (sorted(entry["Key"] for entry in a["Deleted"]), [s.k("a"), s.k("z")]),
    ),
    Case(
        "DeleteObjects",
        "quiet",
        _many("a", "b", quiet=True),
        before=(three,),
        then=lambda s, a: ((_left(s), a.get("Deleted")), (["c"], None)),
    ),
    Case(
        "DeleteObjects",
        "keys that need escaping",
        lambda s: s.dev.delete_objects(Delete={"Objects": [{"Key": s.k("<a>&\"'ü ")}]}),
        before=(three, lambda s: s.notes.update(a=s.dev.put_object(Key=s.k("<a>&\"'ü "), Body=b"x"))),
        then=lambda s, a: (_left(s), ["a", "b", "c"]),
    ),
    Case(
        "DeleteObjects",
        "a thousand",
        lambda s: s.dev.delete_objects(Delete={"Objects": [{"Key": s.k(f"{n:03}")} for n in range(1000)]}),
        then=lambda s, a: (len(a["Deleted"]), 1000),
    ),
    Case(
        "DeleteObjects",
        "more than a thousand",
        lambda s: s.dev.delete_objects(Delete={"Objects": [{"Key": s.k("abc"[n % 3])} for n in range(1001)]}),
        400,
        "MalformedXML",
        before=(three,),
    ),
    Case("DeleteObjects", "none", _many(), 400, "MalformedXML", before=(three,)),
    Case("DeleteObjects", "no XML", _document(b"<Delete"), 400, "MalformedXML", before=(three,)),
    Case(
        "DeleteObjects",
        "an entry without a key",
        _document(b"<Delete><Object/></Delete>"),
        400,
        "MalformedXML",
    ),
    Case(
        "DeleteObjects",
        "a document with entities",
        _document(b'<!DOCTYPE d [<!ENTITY a "b">]><Delete><Object><Key>&a;</Key></Object></Delete>'),
        400,
        "MalformedXML",
    ),
    Case(
        "DeleteObjects",
        "a wrong Content-MD5",
        lambda s: _document(
            f"<Delete><Object><Key>{s.k('a')}</Key></Object></Delete>".encode(),
            **{"content-md5": "AAAAAAAAAAAAAAAAAAAAAA=="},
        )(s),
        400,
        "BadDigest",
        before=(three,),
    ),
    Case(
        "DeleteObjects",
        "a wrong checksum",
        lambda s: _document(
            f"<Delete><Object><Key>{s.k('a')}</Key></Object></Delete>".encode(),
            **{"x-amz-checksum-crc32": "AAAAAA=="},
        )(s),
        400,
        "BadDigest",
        before=(three,),
    ),
    Case(
        "DeleteObjects",
        "a document that is too large",
        _document(b"<Delete>" + b" " * (3 << 20) + b"</Delete>"),
        400,
        "MaxMessageLengthExceeded",
    ),
    Case("DeleteObjects", "a missing bucket", _many("a", Bucket=MISSING), 404, "NoSuchBucket"),
    Case("DeleteObjects", "somebody else's bucket", _many("a", Bucket=FOREIGN), 403, "AccessDenied"),
    Case(
        "DeleteObjects",
        "one who may only read",
        lambda s: s.viewer.delete_objects(Delete={"Objects": [{"Key": s.k("a")}]}),
        403,
        "AccessDenied",
        before=(three,),
    ),
    Case(
        "DeleteObjects",
        "anonymous",
        lambda s: s.nobody.delete_objects(Delete={"Objects": [{"Key": s.k("a")}]}),
        403,
        "AccessDenied",
        before=(three,),
    ),
]
