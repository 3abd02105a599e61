"""ListObjects in both versions: order, prefixes, delimiters, pages, encodings."""

from __future__ import annotations

from typing import Any

from s3_table.case import Answer, Case
from s3_table.stage import FOREIGN, MISSING, Stage

__all__ = ["CASES"]

# In the order of their bytes, which is not that of people.
_KEYS = ["A", "a", "a/1", "a/2", "b/c/1", "b/c/2", "b/d", "ü"]


def tree(stage: Stage) -> None:
    """Eight objects in folders."""
    for name in reversed(_KEYS):
        stage.dev.put_object(Key=stage.k(name), Body=b"x")


def _keys(stage: Stage, answer: Answer) -> list[str]:
    return [entry["Key"].removeprefix(stage.prefix) for entry in answer.get("Contents", [])]


def _folders(stage: Stage, answer: Answer) -> list[str]:
    return [entry["Prefix"].removeprefix(stage.prefix) for entry in answer.get("CommonPrefixes", [])]


def _found(keys: list[str], folders: list[str] | None = None, is_truncated: bool = False) -> Any:
    return lambda s, a: ((_keys(s, a), _folders(s, a), a["IsTruncated"]), (keys, folders or [], is_truncated))


def _list(version: int, prefix: str = "", **more: Any) -> Any:
    name = "list_objects" if version == 1 else "list_objects_v2"
    return lambda s: getattr(s.dev, name)(Prefix=s.k(prefix), **more)


def _raw(version: int, **query: str) -> Any:
    pairs = [("list-type", "2")] if version == 2 else []
    return lambda s: s.raw(
        "GET",
        f"/{s.bucket}",
        query=[*pairs, *((name.replace("_", "-"), value) for name, value in query.items())],
    )


def _pages_v1(stage: Stage, **more: Any) -> list[list[str]]:
    pages, marker = [], ""
    while True:
        page = stage.dev.list_objects(Prefix=stage.prefix, Marker=marker, MaxKeys=3, **more)
        pages.append(_keys(stage, page) + _folders(stage, page))
        if not page["IsTruncated"] or len(pages) > 9:
            return pages
        marker = page.get("NextMarker") or page["Contents"][-1]["Key"]


def _pages_v2(stage: Stage, **more: Any) -> list[list[str]]:
    pages: list[list[str]] = []
    token: dict[str, str] = {}
    while True:
        page = stage.dev.list_objects_v2(Prefix=stage.prefix, MaxKeys=3, **token, **more)
        pages.append(_keys(stage, page) + _folders(stage, page))
        if not page["IsTruncated"] or len(pages) > 9:
            return pages
        token = {"ContinuationToken": page["NextContinuationToken"]}


def _both(version: int) -> list[Case]:
    operation = "ListObjects" if version == 1 else "ListObjectsV2"
    pages = _pages_v1 if version == 1 else _pages_v2
    asked = {"list_objects": 1, "list_objects_v2": 2}
    method = next(name for name, number in asked.items() if number == version)
    return [
        Case(operation, "in the order of bytes", _list(version), before=(tree,), then=_found(_KEYS)),
        Case(
            operation, "below a prefix", _list(version, "a"), before=(tree,), then=_found(["a", "a/1", "a/2"])
        ),
        Case(operation, "a prefix that nothing has", _list(version, "none"), before=(tree,), then=_found([])),
        Case(
            operation,
            "folders",
            _list(version, Delimiter="/"),
            before=(tree,),
            then=_found(["A", "a", "ü"], ["a/", "b/"]),
        ),
        Case(
            operation,
            "folders below a folder",
            _list(version, "b/", Delimiter="/"),
            before=(tree,),
            then=_found(["b/d"], ["b/c/"]),
        ),
        Case(
            operation,
            "another delimiter",
            _list(version, "b", Delimiter="c/"),
            before=(tree,),
            then=_found(["b/d"], ["b/c/"]),
        ),
        Case(
            operation,
            "a delimiter that is empty",
            _list(version, "a", Delimiter=""),
            before=(tree,),
            then=_found(["a", "a/1", "a/2"]),
        ),
        Case(
            operation,
            "a page",
            _list(version, MaxKeys=2),
            before=(tree,),
            then=_found(["A", "a"], is_truncated=True),
        ),
        Case(operation, "no keys at all", _list(version, MaxKeys=0), before=(tree,), then=_found([])),
        Case(
            operation,
            "more keys than a page holds",
            _list(version, MaxKeys=5000),
            before=(tree,),
            then=lambda s, a: ((_keys(s, a), a["MaxKeys"]), (_KEYS, 1000)),
        ),
        Case(
            operation,
            "page by page",
            _list(version),
            before=(tree,),
            then=lambda s, a: (pages(s), [_KEYS[:3], _KEYS[3:6], _KEYS[6:]]),
        ),
        Case(
            operation,
            "folders page by page",
            _list(version),
            before=(tree,),
            then=lambda s, a: (pages(s, Delimiter="/"), [["A", "a", "a/"], ["ü", "b/"]]),
        ),
        Case(
            operation,
            "keys encoded for URLs",
            _raw(version, prefix="", encoding_type="url", max_keys="1000"),
            before=(tree,),
            then=lambda s, a: (f"{s.prefix}%C3%BC".encode() in a.body, True),
        ),
        Case(
            operation,
            "what is known of each key",
            _list(version, "ü"),
            before=(tree,),
            then=lambda s, a: (
                [(e["Size"], e["ETag"], e["StorageClass"]) for e in a["Contents"]],
                [(1, '"9dd4e461268c8034f5c8564e155c67a6"', "STANDARD")],
            ),
        ),
        Case(
            operation,
            "an encoding that is unknown",
            _raw(version, encoding_type="xml"),
            400,
            "InvalidArgument",
        ),
        Case(operation, "max-keys below zero", _raw(version, max_keys="-1"), 400, "InvalidArgument"),
        Case(operation, "max-keys that is no number", _raw(version, max_keys="ten"), 400, "InvalidArgument"),
        Case(
            operation,
            "max-keys beyond all numbers",
            _raw(version, max_keys="99999999999"),
            400,
            "InvalidArgument",
        ),
        Case(operation, "a missing bucket", _list(version, Bucket=MISSING), 404, "NoSuchBucket"),
        Case(operation, "somebody else's bucket", _list(version, Bucket=FOREIGN), 403, "AccessDenied"),
        Case(operation, "one who may only read", lambda s: getattr(s.viewer, method)(MaxKeys=1)),
        Case(operation, "anonymous", lambda s: getattr(s.nobody, method)(), 403, "AccessDenied"),
    ]


CASES = [
    *_both(1),
    Case(
        "ListObjects",
        "after a marker",
        lambda s: s.dev.list_objects(Prefix=s.prefix, Marker=s.k("a/2")),
        before=(tree,),
        then=_found(["b/c/1", "b/c/2", "b/d", "ü"]),
    ),
    Case(
        "ListObjects",
        "after a marker that is no key",
        lambda s: s.dev.list_objects(Prefix=s.prefix, Marker=s.k("b/c/10")),
        before=(tree,),
        then=_found(["b/c/2", "b/d", "ü"]),
    ),
    Case(
        "ListObjects",
        "after a marker that is a folder",
        lambda s: s.dev.list_objects(Prefix=s.prefix, Delimiter="/", Marker=s.k("a/")),
        before=(tree,),
        then=_found(["ü"], ["b/"]),
    ),
    Case(
        "ListObjects",
        "with owners",
        _list(1, "A"),
        before=(tree,),
        then=lambda s, a: (bool(a["Contents"][0]["Owner"]["ID"]), True),
    ),
    *_both(2),
    Case(
        "ListObjectsV2",
        "after a key",
        lambda s: s.dev.list_objects_v2(Prefix=s.prefix, StartAfter=s.k("a/2")),
        before=(tree,),
        then=_found(["b/c/1", "b/c/2", "b/d", "ü"]),
    ),
    Case(
        "ListObjectsV2",
        "a token counts more than start-after",
        lambda s: s.dev.list_objects_v2(
            Prefix=s.prefix,
            StartAfter=s.k("z"),
            ContinuationToken=s.dev.list_objects_v2(Prefix=s.prefix, MaxKeys=6)["NextContinuationToken"],
        ),
        before=(tree,),
        then=_found(["b/d", "ü"]),
    ),
    Case(
        "ListObjectsV2",
        "how many there are",
        _list(2, Delimiter="/"),
        before=(tree,),
        then=lambda s, a: (a["KeyCount"], 5),
    ),
    Case(
        "ListObjectsV2",
        "no owners unasked",
        _list(2, "A"),
        before=(tree,),
        then=lambda s, a: ("Owner" in a["Contents"][0], False),
    ),
    Case(
        "ListObjectsV2",
        "owners on request",
        _list(2, "A", FetchOwner=True),
        before=(tree,),
        then=lambda s, a: (bool(a["Contents"][0].get("Owner", {}).get("ID")), True),
    ),
    Case("ListObjectsV2", "a token that is none", _raw(2, continuation_token="§"), 400, "InvalidArgument"),
    Case(
        "ListObjectsV2",
        "a token that is empty is the beginning",
        lambda s: s.raw(
            "GET",
            f"/{s.bucket}",
            query=[("continuation-token", ""), ("list-type", "2"), ("prefix", s.prefix)],
        ),
        before=(tree,),
        then=lambda s, a: (a.text_of("KeyCount"), "8"),
    ),
]
