"""Wakes followers when there may be something new: one small query and a stat per file for all of them.

A follower costs no thread and no query of its own while nothing happens, so that hundreds can follow at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread

from trainshed.services.pulse import Pulse

__all__ = ["Follower", "PulseBoard"]

_log = logging.getLogger("trainshed.api")
# How often to look: while somebody has just come or something has just happened, and otherwise.
_EAGER_SECONDS = 0.03
_CALM_SECONDS = 0.15
_STAY_EAGER_SECONDS = 3.0
_PAUSE_AFTER_FAULT_SECONDS = 2.0

Probe = Callable[[], object]


class Follower:
    """One who follows a job, or a file of it."""

    def __init__(self, job_id: str, probe: Probe | None) -> None:
        self.job_id = job_id
        self._probe = probe
        self.pulse: Pulse | None = None
        self._state: object = None
        self._news = asyncio.Event()

    @property
    def has_probe(self) -> bool:
        """Whether there is more to look at than the job's row."""
        return self._probe is not None

    def look(self) -> object:
        """What the probe sees now. Runs in a thread."""
        return self._probe() if self._probe is not None else None

    def tell(self, pulse: Pulse | None, state: object) -> bool:
        """Take in what was seen, and wake up if it is news; whether it is."""
        if (pulse, state) == (self.pulse, self._state):
            return False
        self.pulse, self._state = pulse, state
        self._news.set()
        return True

    def clear(self) -> None:
        """What follows is news; call it before looking for oneself, so that nothing falls between."""
        self._news.clear()

    async def wait(self, seconds: float) -> bool:
        """Wait for news, at most so long; whether there is any."""
        try:
            await asyncio.wait_for(self._news.wait(), seconds)
        except TimeoutError:
            return False
        return True


class PulseBoard:
    """All followers of this process."""

    def __init__(
        self,
        read: Callable[[Collection[str]], dict[str, Pulse]],
        is_current: Callable[[Collection[str]], bool] = lambda _job_ids: False,
    ) -> None:
        self._read = read
        # Whether what was read last of these jobs is still so; asked in the event loop, so it must be quick.
        self._is_current = is_current
        self._followers: set[Follower] = set()
        self._task: asyncio.Task[None] | None = None
        self._eager_until = 0.0

    @property
    def followers(self) -> int:
        """How many follow something at the moment."""
        return len(self._followers)

    @asynccontextmanager
    async def follow(self, job_id: str, probe: Probe | None = None) -> AsyncIterator[Follower]:
        """Follow a job as long as the block runs; the probe's answer is compared as well."""
        follower = Follower(job_id, probe)
        self._followers.add(follower)
        self._stay_eager()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        try:
            yield follower
        finally:
            self._followers.discard(follower)

    async def _poll(self) -> None:
        limiter = anyio.CapacityLimiter(1)
        while self._followers:
            followers = list(self._followers)
            if self._is_quiet(followers):
                await asyncio.sleep(self._pause())
                continue
            try:
                pulses, states, effort = await anyio.to_thread.run_sync(
                    self._look, followers, limiter=limiter
                )
            except Exception:
                # The database is busy or away: followers stay, and hear again when it is back.
                _log.exception("reading the pulse of followed jobs failed")
                await asyncio.sleep(_PAUSE_AFTER_FAULT_SECONDS)
                continue
            news = [
                follower.tell(pulses.get(follower.job_id), state)
                for follower, state in zip(followers, states, strict=True)
            ]
            if any(news):
                self._stay_eager()
            # However many follow: looking takes a tenth of a core at most.
            await asyncio.sleep(max(self._pause(), 9 * effort))

    def _is_quiet(self, followers: list[Follower]) -> bool:
        """Whether nothing can be new: each has been told of what was read, and nobody has changed anything since."""
        return all(follower.pulse and not follower.has_probe for follower in followers) and self._is_current(
            {follower.job_id for follower in followers}
        )

    def _pause(self) -> float:
        return _EAGER_SECONDS if time.monotonic() < self._eager_until else _CALM_SECONDS

    def _stay_eager(self) -> None:
        self._eager_until = time.monotonic() + _STAY_EAGER_SECONDS

    def _look(self, followers: list[Follower]) -> tuple[dict[str, Pulse], list[object], float]:
        """What is to be seen, and the CPU time that looking took: a busy machine alone is no reason to wait."""
        began = time.thread_time()
        states = [follower.look() for follower in followers]
        pulses = self._read({follower.job_id for follower in followers})
        return pulses, states, time.thread_time() - began
