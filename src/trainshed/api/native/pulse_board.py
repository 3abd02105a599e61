"""Wakes followers when their job changes: one small query for all watched jobs, however many follow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread

from trainshed.services.pulse import Pulse

__all__ = ["PulseBoard", "Watch"]

_log = logging.getLogger("trainshed.api")
_INTERVAL_SECONDS = 0.15


class Watch:
    """One job under watch, shared by all who follow it."""

    def __init__(self) -> None:
        self.followers = 0
        self.pulse: Pulse | None = None
        self._changed = asyncio.Event()

    def update(self, pulse: Pulse | None) -> None:
        """Take in what the database says now, and wake everyone if it is news."""
        if pulse != self.pulse:
            self.pulse = pulse
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    async def wait_for_change(self, seconds: float) -> bool:
        """Wait until the job changed, at most so long; whether it did."""
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return False
        return True


class PulseBoard:
    """All watched jobs of this process."""

    def __init__(self, read: Callable[[Collection[str]], dict[str, Pulse]]) -> None:
        self._read = read
        self._watches: dict[str, Watch] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def followers(self) -> int:
        """How many follow a job at the moment."""
        return sum(watch.followers for watch in self._watches.values())

    @asynccontextmanager
    async def watch(self, job_id: str) -> AsyncIterator[Watch]:
        """Watch a job as long as the block runs."""
        watch = self._watches.setdefault(job_id, Watch())
        watch.followers += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        try:
            yield watch
        finally:
            watch.followers -= 1
            if watch.followers == 0:
                self._watches.pop(job_id, None)

    async def _poll(self) -> None:
        limiter = anyio.CapacityLimiter(1)
        while self._watches:
            try:
                pulses = await anyio.to_thread.run_sync(self._read, list(self._watches), limiter=limiter)
            except Exception:
                # The database is busy or away: followers stay, and hear again when it is back.
                _log.exception("reading the pulse of watched jobs failed")
                await asyncio.sleep(2.0)
                continue
            for job_id, watch in list(self._watches.items()):
                watch.update(pulses.get(job_id, watch.pulse))
            await asyncio.sleep(_INTERVAL_SECONDS)
