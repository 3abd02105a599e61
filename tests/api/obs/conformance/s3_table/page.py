"""The table as a page of the documentation."""

from __future__ import annotations

from collections.abc import Mapping

from s3_table import CHAPTERS
from s3_table.case import Case

__all__ = ["PAGE", "render_page"]

PAGE = "docs/obs-conformance.md"

_HEAD = """# How closely the object store keeps to S3 and OBS

A table written from the public references of S3 and OBS: for every operation that is served, its successes and the
errors that are documented for it. A case is one request (made by boto3, or signed by hand where boto3 would not make it),
the status and the code that must come back, and what must be so afterwards; after each refusal the bucket is compared
with what it was before. `tests/api/obs/conformance` runs the whole table against the store; the same table against a
real SeaweedFS is run by `benchmarks/conformance.py --write-docs`, which also writes this page.

SeaweedFS is there to compare with, not to be blamed: it does not claim OBS's own operations, and some of its other
answers may be choices of its own. `NotImplemented` is our own rule: what is not done here must be refused, not
overlooked. Such a case says little about a store that does it.

| | cases | Trainshed | SeaweedFS |
|---|---|---|---|
"""


def render_page(seaweedfs: Mapping[str, bool]) -> str:
    """The page; `seaweedfs` says which cases hold there. All hold on our own store, or the tests fail."""
    every = [case for cases in CHAPTERS.values() for case in cases]
    lines = [_total("S3", [case for case in every if case not in CHAPTERS["OBS"]], seaweedfs)]
    lines.append(_total("OBS", CHAPTERS["OBS"], seaweedfs))
    text = _HEAD + "".join(lines)
    for chapter, cases in CHAPTERS.items():
        text += f"\n## {chapter}\n\n| operation | succeeds | refused with | Trainshed | SeaweedFS |\n|---|---|---|---|---|\n"
        for operation in dict.fromkeys(case.operation for case in cases):
            text += _row(operation, [case for case in cases if case.operation == operation], seaweedfs)
    return text


def _total(name: str, cases: list[Case], seaweedfs: Mapping[str, bool]) -> str:
    return f"| {name} | {len(cases)} | {len(cases)} | {_held(cases, seaweedfs)} |\n"


def _row(operation: str, cases: list[Case], seaweedfs: Mapping[str, bool]) -> str:
    fine = sum(case.status < 300 for case in cases)
    refused: dict[str, int] = {}
    for case in cases:
        if case.status >= 300:
            # Answers to HEAD have no body that could tell a code.
            name = f"`{case.code}`" if case.code else str(case.status)
            refused[name] = refused.get(name, 0) + 1
    codes = ", ".join(f"{name} {count}" if count > 1 else name for name, count in sorted(refused.items()))
    return f"| {operation} | {fine or ''} | {codes} | {len(cases)} | {_held(cases, seaweedfs)} |\n"


def _held(cases: list[Case], seaweedfs: Mapping[str, bool]) -> int:
    return sum(seaweedfs.get(str(case), False) for case in cases)
