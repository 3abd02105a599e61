"""Following a log: pieces as they are written, without a thread or a query per follower while nothing is."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fastapi import Request

from trainshed.api.native.streaming import TokenCheck
from trainshed.model.errors import TrainshedError
from trainshed.model.phase import Phase
from trainshed.services import jobs, logs
from trainshed.services.identity import Caller
from trainshed.services.job_view import JobView
from trainshed.services.logs import LogChunk
from trainshed.services.platform import Platform

__all__ = ["End", "Piece", "Quiet", "follow_log"]

_PIECE_BYTES = 256 * 1024
# Should a wake-up ever be missed, this is how long a follower lags behind at most.
_LOOK_SECONDS = 5.0
_QUIET_SECONDS = 15.0


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
    """There is no more, and why."""

    attempt: int
    offset: int
    reason: str
    code: str = ""


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
) -> AsyncGenerator[Piece | Quiet | End, None]:
    """The log from `offset` on: to its present end, or with `follow` to its real one.

    `cut` says how many bytes of what is there may be handed out now; the rest comes with the next piece.
    """
    threads = request.app.state.threads
    check = TokenCheck(platform, request)
    number = attempt or job.attempt
    probe = _SpoolProbe(platform, job.id, job.nodes, stream)
    async with request.app.state.board.follow(job.id, probe) as follower:
        spoken_at = time.monotonic()
        try:
            while not number:
                follower.clear()
                job = await threads.call(partial(jobs.get_job, platform, caller, job.id))
                number = job.attempt
                if number:
                    break
                if not follow or Phase(job.phase).is_terminal:
                    yield End(0, 0, f"The job is {job.phase} and was not started.", "not_started")
                    return
                await threads.call(check.run)
                if not await follower.wait(_QUIET_SECONDS):
                    yield Quiet()
            probe.attempt = number
            while True:
                follower.clear()
                chunk: LogChunk = await threads.call(
                    partial(
                        logs.read_log,
                        platform,
                        caller,
                        job.id,
                        attempt=number,
                        stream=stream,
                        offset=offset,
                        limit=_PIECE_BYTES,
                    )
                )
                size = len(chunk.data) if chunk.ended else cut(chunk.data)
                if size:
                    yield Piece(number, offset, chunk.data[:size])
                    offset += size
                    spoken_at = time.monotonic()
                    continue
                if chunk.ended:
                    yield End(number, offset, chunk.reason or "The log has ended.", "ended")
                    return
                if not follow:
                    if chunk.data:
                        yield Piece(number, offset, chunk.data)
                        offset += len(chunk.data)
                    yield End(number, offset, "This is all so far; the job goes on.", "so_far")
                    return
                await threads.call(check.run)
                await follower.wait(_LOOK_SECONDS)
                if time.monotonic() - spoken_at > _QUIET_SECONDS:
                    spoken_at = time.monotonic()
                    yield Quiet()
        except TrainshedError as fault:
            yield End(number, offset, fault.message, fault.code)


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
        if name == "platform":
            index = int(node.removeprefix("node-") or 0) if node.removeprefix("node-").isdigit() else 0
            return [self._platform.home.run_folder(self._job_id, self.attempt, index).platform_log]
        rank = name.removeprefix("rank-")
        if not rank.isdigit():
            return []
        # Which node holds a rank is the dialect's business; the file is there or it is not.
        folders = [self._platform.home.run_folder(self._job_id, self.attempt, n) for n in range(self._nodes)]
        return [folder.rank_log(int(rank)) for folder in folders]
