"""Files that a job left in its working folders, as they were brought home at the end of an attempt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainshed.db.jobs import JobRow
from trainshed.model.errors import NotFound
from trainshed.runner.leftovers import LEFTOVERS
from trainshed.runner.log_archive import ARCHIVE_BUCKET, archive_prefix
from trainshed.services.identity import Caller
from trainshed.services.job_attempt import find_attempt
from trainshed.services.platform import Platform
from trainshed.store.object_store import ObjectInfo

__all__ = ["Leftover", "list_leftovers", "read_leftover"]

_MOST_LISTED = 10_000
_CHUNK = 1 << 20
_NODE = re.compile(r"(?:node-(\d{1,5})/)?(.+)", re.DOTALL)


@dataclass(frozen=True)
class Leftover:
    """A file that a job left: the path that the job saw, of a further node behind `node-1/`."""

    path: str
    size: int
    attempt: int
    node: int


def list_leftovers(
    platform: Platform, caller: Caller, ref: str, attempt: int | None = None
) -> list[Leftover]:
    """The files that an attempt left (the latest one if none is named), in the order of their paths."""
    job, number, nodes = _load(platform, caller, ref, attempt)
    found: list[Leftover] = []
    for node in range(nodes):
        prefix = archive_prefix(job.id, number, node) + LEFTOVERS
        for info in platform.store.walk(ARCHIVE_BUCKET, prefix):
            shown = (f"node-{node}/" if node else "") + info.key.removeprefix(prefix)
            found.append(Leftover(shown, info.size, number, node))
            if len(found) >= _MOST_LISTED:
                return found
    return found


def read_leftover(
    platform: Platform, caller: Caller, ref: str, path: str, attempt: int | None = None
) -> tuple[int, Iterator[bytes]]:
    """The size and the bytes of a file that an attempt left."""
    job, number, nodes = _load(platform, caller, ref, attempt)
    match = _NODE.fullmatch(path.lstrip("/"))
    node = int(match[1] or 0) if match else 0
    if match is None or node >= nodes or ".." in path.split("/"):
        raise _missing(job, path)
    key = archive_prefix(job.id, number, node) + LEFTOVERS + match[2].lstrip("/")
    try:
        info = platform.store.info(ARCHIVE_BUCKET, key)
    except NotFound:
        raise _missing(job, path) from None
    return info.size, _read(platform, info)


def _read(platform: Platform, info: ObjectInfo) -> Iterator[bytes]:
    with platform.store.open(ARCHIVE_BUCKET, info.key) as file:
        while data := file.read(_CHUNK):
            yield data


def _load(platform: Platform, caller: Caller, ref: str, attempt: int | None) -> tuple[JobRow, int, int]:
    job, row = find_attempt(platform, caller, ref, attempt)
    return job, row.attempt if row else job.attempt, len(row.placements) if row else 0


def _missing(job: JobRow, path: str) -> NotFound:
    return NotFound(
        f"'{job.name}' left no file '{path[:200]}'.",
        hint=f"`trainshed files {job.name}` lists them; they are there when an attempt has ended.",
        code="unknown_file",
        where="path",
    )
