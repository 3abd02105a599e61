"""Keys as wild as S3 allows: written, read, listed, copied and removed; and those that it does not allow."""

from __future__ import annotations

from urllib.parse import quote

from s3_table.case import Answer, Case
from s3_table.stage import Stage

__all__ = ["CASES"]

_KEYS = {
    "dots that lead upward": "../../etc/passwd",
    "a dot": "./x",
    "only dots": "..",
    "a slash twice": "a//b",
    "a slash at the end": "folder/",
    "a backslash": "a\\b\\..\\c",
    "blanks": " a  b ",
    "a plus, a percent sign and an ampersand": "a+b%20&c=d",
    "a question mark and a hash": "a?b#c",
    "Chinese": "数据/训练集.txt",
    "a letter in two forms": "ü and u\u0308",
    "an emoji": "\U0001f680",
    "a newline": "a\nb",
    "a control character": "a\x01b",
    "markup": "<a>&\"'</a>",
    "quotes and a semicolon": "'; DROP TABLE objects; --",
    "a name of the platform": ".trainshed/x",
    "a parameter's name": "uploads",
}


def _put(stage: Stage, name: str) -> Answer:
    return stage.raw("PUT", stage.path(stage.k(name)), body=name.encode())


def _get(stage: Stage, name: str) -> bytes:
    return stage.raw("GET", stage.path(stage.k(name))).body


def _listed(stage: Stage) -> list[str]:
    page = stage.dev.list_objects_v2(Prefix=stage.prefix)
    return [entry["Key"].removeprefix(stage.prefix) for entry in page.get("Contents", [])]


def _walk(stage: Stage, name: str) -> tuple[object, object]:
    """Read, list, copy, remove; what is found at each step."""
    found = [_get(stage, name), _listed(stage)]
    source = quote(f"{stage.bucket}/{stage.k(name)}")
    stage.raw("PUT", stage.path(stage.k("copy")), headers={"x-amz-copy-source": source})
    found.append(_get(stage, "copy"))
    stage.raw("DELETE", stage.path(stage.k(name)))
    found.append(_listed(stage))
    return found, [name.encode(), [name], name.encode(), ["copy"]]


def _long(stage: Stage, size: int, letter: str = "k") -> str:
    """A key of so many bytes."""
    return letter * ((size - len(stage.prefix)) // len(letter.encode())) + "k" * (
        (size - len(stage.prefix)) % len(letter.encode())
    )


def beside(stage: Stage) -> None:
    """`a`, and `a/b` beside it."""
    _put(stage, "a")
    _put(stage, "a/b")


CASES = [
    *(
        Case(
            "PutObject",
            f"a key with {what}",
            lambda s, k=key: _put(s, k),
            then=lambda s, a, k=key: _walk(s, k),
        )
        for what, key in _KEYS.items()
    ),
    Case(
        "PutObject",
        "a key of 1,024 bytes",
        lambda s: _put(s, _long(s, 1024)),
        then=lambda s, a: (len(_listed(s)[0]) + len(s.prefix), 1024),
    ),
    Case(
        "PutObject",
        "a key of 1,024 bytes in fewer letters",
        lambda s: _put(s, _long(s, 1024, "数")),
        then=lambda s, a: (len((s.prefix + _listed(s)[0]).encode()), 1024),
    ),
    Case(
        "PutObject",
        "a key of 1,025 bytes",
        lambda s: _put(s, _long(s, 1025)),
        400,
        "KeyTooLongError",
        then=lambda s, a: (_listed(s), []),
    ),
    Case(
        "PutObject",
        "a key of 1,025 bytes in fewer letters",
        lambda s: _put(s, _long(s, 1025, "数")),
        400,
        "KeyTooLongError",
        then=lambda s, a: (_listed(s), []),
    ),
    Case(
        "GetObject",
        "a key of 1,025 bytes",
        lambda s: s.dev.get_object(Key=s.k(_long(s, 1025))),
        400,
        "KeyTooLongError",
    ),
    Case(
        "PutObject",
        "a key that is no UTF-8",
        lambda s: s.raw("PUT", f"/{s.bucket}/{s.prefix}%ff", body=b"x"),
        400,
        "InvalidURI",
        then=lambda s, a: (_listed(s), []),
    ),
    Case(
        "PutObject",
        "a key with a NUL",
        lambda s: s.raw("PUT", f"/{s.bucket}/{s.prefix}a%00b", body=b"x"),
        400,
        "InvalidArgument",
        then=lambda s, a: (_listed(s), []),
    ),
    Case(
        "GetObject",
        "an object beside its namesake's folder",
        lambda s: s.dev.get_object(Key=s.k("a")),
        before=(beside,),
        then=lambda s, a: ((a.body, s.read(s.k("a/b")), _listed(s)), (b"a", b"a/b", ["a", "a/b"])),
    ),
    Case(
        "DeleteObject",
        "an object beside its namesake's folder",
        lambda s: s.dev.delete_object(Key=s.k("a")),
        204,
        before=(beside,),
        then=lambda s, a: (_listed(s), ["a/b"]),
    ),
    Case(
        "GetObject",
        "a folder is no object",
        lambda s: s.dev.get_object(Key=s.k("a/")),
        404,
        "NoSuchKey",
        before=(beside,),
    ),
    Case(
        "GetObject",
        "dots are no way out of the bucket",
        lambda s: s.raw("GET", f"/{s.bucket}/../else-shared/secret"),
        404,
        "NoSuchKey",
    ),
    Case(
        "GetObject",
        "encoded dots are no way out of the bucket",
        lambda s: s.raw("GET", f"/{s.bucket}/%2e%2e/else-shared/secret"),
        404,
        "NoSuchKey",
    ),
    Case(
        "GetObject", "a bucket whose name is dots", lambda s: s.raw("GET", "/../secret"), 404, "NoSuchBucket"
    ),
]
