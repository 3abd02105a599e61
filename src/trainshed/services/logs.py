"""Logs of jobs: byte for byte, from any offset, until an end that says why it is the end."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass

from trainshed.db.attempts import AttemptRow
from trainshed.db.jobs import JobRow
from trainshed.model.errors import InvalidInput, NotFound
from trainshed.model.phase import Phase
from trainshed.services.identity import Caller
from trainshed.services.job_attempt import find_attempt
from trainshed.services.job_credentials import masked_values
from trainshed.services.job_view import TextMask
from trainshed.services.log_mask import LogMask
from trainshed.services.log_source import LogSource
from trainshed.services.platform import Platform

__all__ = ["LogChunk", "LogStreamView", "log_streams", "read_log"]

_LARGEST_CHUNK = 4 << 20
_LARGEST_OFFSET = 1 << 60
# A rank, what the platform says, or a file that a launcher wrote.
_STREAM = re.compile(r"(?:node-(\d{1,5})/)?(?:(platform)|rank-(\d{1,6})|([A-Za-z][\w.~-]{0,99}))", re.ASCII)


@dataclass(frozen=True)
class LogChunk:
    """A piece of a log. `ended`: nothing will follow behind `next_offset`, and `reason` says why."""

    data: bytes
    offset: int
    next_offset: int
    size: int
    ended: bool
    reason: str
    # Which start of the job the log is of; 0 when the job has not started yet.
    attempt: int = 0


@dataclass(frozen=True)
class LogStreamView:
    """One log of an attempt: `rank-0`, `platform`, `node-1/platform`."""

    stream: str
    attempt: int
    size: int
    ended: bool
    reason: str


@dataclass(frozen=True)
class _Place:
    """Where a stream lies: its node, and its name there."""

    node_index: int
    name: str


def log_streams(
    platform: Platform, caller: Caller, ref: str, attempt: int | None = None
) -> list[LogStreamView]:
    """All logs of an attempt (the latest one if none is named), ranks first."""
    job, row = find_attempt(platform, caller, ref, attempt)
    if row is None:
        return []
    reason = _reason(platform, job, row)
    streams = [f"rank-{rank}" for rank in range(sum(_ranks_per_node(job, row)))]
    for node in range(len(row.placements)):
        prefix = f"node-{node}/" if node else ""
        streams += [f"{prefix}{name}" for name in ("platform", *_file_names(platform, job, row, node))]
    views = []
    for stream in streams:
        place = _locate(platform, job, row, stream)
        size = LogSource(platform, job.id, row.attempt, place.node_index, place.name).size()
        views.append(LogStreamView(stream, row.attempt, size, bool(reason), reason))
    return views


def read_log(
    platform: Platform,
    caller: Caller,
    ref: str,
    *,
    attempt: int | None = None,
    stream: str = "rank-0",
    offset: int = 0,
    limit: int = 1 << 18,
) -> LogChunk:
    """A piece of a log from an offset. Secrets of the job are overwritten with asterisks.

    Without an attempt the latest one is read; who follows a log goes on with the attempt that the first
    piece names.
    """
    if not 0 <= offset <= _LARGEST_OFFSET or limit < 1:
        raise InvalidInput("An offset is 0 or more, a limit 1 or more.", where="offset")
    if not _STREAM.fullmatch(stream):
        raise _unknown_stream(stream)
    # What is known about the end is read before the log: an end that is known then is behind all bytes.
    job, row = find_attempt(platform, caller, ref, attempt)
    if row is None:
        reason = _never_started(platform, job)
        return LogChunk(b"", offset, offset, 0, bool(reason), reason)
    reason = _reason(platform, job, row)
    place = _locate(platform, job, row, stream)
    source = LogSource(platform, job.id, row.attempt, place.node_index, place.name)
    mask = LogMask(masked_values(platform, job.id))
    limit = min(limit, _LARGEST_CHUNK)
    size = source.size()
    start = max(0, offset - mask.reach)
    wanted = offset - start + limit + mask.reach
    window = source.read(start, wanted)
    behind = start + len(window)
    shown_end = min(behind, offset + limit)
    if not reason and len(window) < wanted:
        # A secret may be written in two steps; its beginning is shown when the rest is there.
        shown_end = min(shown_end, behind - mask.open_end(window))
    data = mask.apply(window)[offset - start : max(0, shown_end - start)]
    next_offset = offset + len(data)
    size = max(size, next_offset) if data else size
    ended = bool(reason) and next_offset >= size
    return LogChunk(data, offset, next_offset, size, ended, reason if ended else "", row.attempt)


def _reason(platform: Platform, job: JobRow, row: AttemptRow) -> str:
    """Why the attempt's logs are at their end, or empty while they may grow."""
    if row.state != "ended":
        return ""
    if job.attempt > row.attempt:
        return f"attempt {row.attempt} ended, attempt {row.attempt + 1} follows"
    if not job.phase.is_terminal:
        return f"attempt {row.attempt} ended, the job is {job.phase}"
    return _phase_reason(platform, job)


def _never_started(platform: Platform, job: JobRow) -> str:
    return _phase_reason(platform, job) if job.phase.is_terminal else ""


def _phase_reason(platform: Platform, job: JobRow) -> str:
    message = str((job.ending or {}).get("message", ""))
    if job.phase is Phase.COMPLETED or not message:
        return f"job {job.phase}"
    return f"job {job.phase}: {TextMask(platform, job.id).text(message)}"


def _ranks_per_node(job: JobRow, row: AttemptRow) -> list[int]:
    """How many processes each node of the attempt has: as many as asked for, or one per device, at least one."""
    asked = int(job.spec.get("processes", 0)) if job.spec.get("boot") else 1
    if asked:
        return [asked] * len(row.placements)
    return [max(1, len(placement.get("devices", ()))) for placement in row.placements]


def _file_names(platform: Platform, job: JobRow, row: AttemptRow, node: int) -> list[str]:
    """The files of launchers that a node has: by its last report, or by what lies on this machine."""
    names = {
        name.removeprefix("files/")
        for name in (row.reports[node].get("log_sizes", ()) if node < len(row.reports) else ())
        if name.startswith("files/")
    }
    with contextlib.suppress(OSError):
        names.update(os.listdir(platform.home.run_folder(job.id, row.attempt, node).file_logs))
    return sorted(name for name in names if _STREAM.fullmatch(name))


def _locate(platform: Platform, job: JobRow, row: AttemptRow, stream: str) -> _Place:
    match = _STREAM.fullmatch(stream)
    if match is None:
        raise _unknown_stream(stream)
    if match[2]:
        node = int(match[1] or 0)
        if node >= len(row.placements):
            raise _unknown_stream(stream)
        return _Place(node, "platform")
    if match[4]:
        node = int(match[1] or 0)
        if match[4] not in _file_names(platform, job, row, node):
            raise _unknown_stream(stream)
        return _Place(node, f"files/{match[4]}")
    rank, first = int(match[3]), 0
    for node, count in enumerate(_ranks_per_node(job, row)):
        if rank < first + count and (match[1] is None or int(match[1]) == node):
            return _Place(node, f"rank-{rank}")
        first += count
    raise _unknown_stream(stream)


def _unknown_stream(stream: str) -> NotFound:
    return NotFound(
        f"The job has no log '{stream[:80]}'.",
        hint="Logs are rank-0, rank-1 …, platform, and node-1/platform … for further nodes; see `trainshed logs --list`.",
        code="unknown_stream",
        where="stream",
    )
