"""Following a log: pieces as they are written, without a thread or a query per follower while nothing is."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fastapi import Request

from trainshed.api.native.streaming import StreamThreads, TokenCheck
from trainshed.model.errors import TrainshedError, Unavailable
from trainshed.model.phase import Phase
from trainshed.services import jobs, logs
from trainshed.services.identity import Caller
from trainshed.services.job_view import JobView
from trainshed.services.platform import Platform

__all__ = ["End", "Piece", "Quiet", "follow_log"]

# Should a wake-up ever be missed, this is how long a follower lags behind at most.
_LOOK_SECONDS = 5.0
_QUIET_SECONDS = 15.0
_PAUSE_SECONDS = 1.0

ENDED, SO_FAR, NOT_STARTED = "ended", "so_far", "not_started"


@dataclass(frozen=True)
class Piece:
    """Bytes of the log. `offset` is where they stand in it."""

    attempt: int
    offset: int
    data: bytes


@dataclass(frozen=True)
class Quiet:
    """Nothing came for a while; the follower is still connected."""


@dataclass(frozen=True)
class End:
    """There is no more, and why. Another code than the three known ones is that of an error."""

    attempt: int
    offset: int
    reason: str
    code: str

    @property
    def is_good(self) -> bool:
        """Whether all was sent that was asked for."""
        return self.code in (ENDED, SO_FAR, NOT_STARTED)


async def follow_log(
    platform: Platform,
    caller: Caller,
    job: JobView,
    request: Request,
    *,
    stream: str,
    attempt: int | None,
    offset: int,
    follow: bool,
    cut: Callable[[bytes], int] = len,
    piece_bytes: int = 256 * 1024,
) -> AsyncGenerator[Piece | Quiet | End, None]:
    """The log from `offset` on: to its present end, or with `follow` to its real one.

    `cut` says how many bytes of what is there may be handed out now; the rest comes with the next piece.
    """
    threads: StreamThreads = request.app.state.threads
    check = TokenCheck(platform, request)
    number = attempt or job.attempt
    probe = _SpoolProbe(platform, job.id, job.nodes, stream)
    spoken_at = time.monotonic()
    async with request.app.state.board.follow(job.id, probe) as follower:
        while True:
            follower.clear()
            try:
                if check.is_due:
                    await threads.call(check.run)
                if not number:
                    job = await threads.call(partial(jobs.get_job, platform, caller, job.id))
                    number = job.attempt
                probe.attempt = number
                read = partial(
                    logs.read_log,
                    platform,
                    caller,
                    job.id,
                    attempt=number,
                    stream=stream,
                    offset=offset,
                    limit=piece_bytes,
                )
                chunk = await threads.call(read) if number else None
            except Unavailable:
                # The database or the store is away for a moment: that is no end of the log.
                await asyncio.sleep(_PAUSE_SECONDS)
                yield Quiet()
                continue
            except TrainshedError as fault:
                yield End(number, offset, fault.message, fault.code)
                return
            if chunk is None:
                if not follow or Phase(job.phase).is_terminal:
                    yield End(0, 0, f"The job is {job.phase} and was not started.", NOT_STARTED)
                    return
            else:
                size = len(chunk.data) if chunk.ended else cut(chunk.data)
                if not follow and chunk.next_offset >= chunk.size:
                    size = len(chunk.data)
                if size:
                    yield Piece(number, offset, chunk.data[:size])
                    offset += size
                    spoken_at = time.monotonic()
                    continue
                if chunk.ended:
                    yield End(number, offset, chunk.reason, ENDED)
                    return
                if not follow:
                    yield End(number, offset, "This is all so far; the job goes on.", SO_FAR)
                    return
            await follower.wait(_LOOK_SECONDS)
            if time.monotonic() - spoken_at > _QUIET_SECONDS:
                spoken_at = time.monotonic()
                yield Quiet()


class _SpoolProbe:
    """Looks at the spool file of a log: its size changes when there is something to read.

    An API on another machine than the runner sees no file; its followers look every few seconds.
    """

    def __init__(self, platform: Platform, job_id: str, nodes: int, stream: str) -> None:
        self._platform = platform
        self._job_id = job_id
        self._nodes = nodes
        self._stream = stream
        self._path: Path | None = None
        self.attempt = 0

    def __call__(self) -> object:
        if not self.attempt:
            return None
        for path in [self._path] if self._path else self._candidates():
            try:
                status = os.stat(path)
            except OSError:
                continue
            self._path = path
            return status.st_size, status.st_mtime_ns
        return None

    def _candidates(self) -> list[Path]:
        node, _, name = self._stream.rpartition("/")
        index = int(node.removeprefix("node-")) if node.removeprefix("node-").isdigit() else 0
        if name == "platform":
            return [self._platform.home.run_folder(self._job_id, self.attempt, index).platform_log]
        rank = name.removeprefix("rank-")
        if not rank.isdigit():
            return [self._platform.home.run_folder(self._job_id, self.attempt, index).file_log(name)]
        # Which node holds a rank is the dialect's business; the file is there or it is not.
        folders = [self._platform.home.run_folder(self._job_id, self.attempt, n) for n in range(self._nodes)]
        return [folder.rank_log(int(rank)) for folder in folders]
