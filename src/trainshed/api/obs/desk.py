"""Where the event loop has short work done: by one thread, or by itself as long as the disk answers promptly.

Python runs one thread at a time. Two dozen threads with a small request each pass the interpreter's lock on at every
system call, and that costs more than the requests do. So they queue for one thread, which takes several at a time and
hands their results back together. Another one begins only while the first waits for the disk: the loop notices that
nothing gets finished.

Work that touches no more than the file system's cache (`run_promptly`) is not worth a thread at all: the loop does all
of it that is ready in one go. It must not wait for a disk, though. When something took long, or when writes are not
getting durable, this work goes to the threads as well, until they find the disk prompt again; and when the loop is
caught by a stall nevertheless, an understudy answers in its place (`wire.understudy`).

What is expensive once but cheap for many, such as making writes durable, is left to a thread of its own in any case
(`Later`): it finishes together all that has come while it was busy with those before.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

__all__ = ["Desk", "Later"]

T = TypeVar("T")

# How many requests one turn takes, and how long the first of them waits at most for the others.
_TURN = 32
_TURN_SECONDS = 0.003
# Nothing finished for this long: the thread waits for something, and another one takes over.
_STALL_SECONDS = 0.01
# Work that took longer has waited for the disk, and so has a group that is not finished after that time. For a while
# after that the loop leaves all work to threads.
_PROMPT_SECONDS = 0.03
_PROMPT_FINISH_SECONDS = 0.3
_DISTRUST_SECONDS = 1.0
# Threads that finish together what came apart. While one is at it, the next group gathers; only when that takes long
# (a busy disk), another one begins with those that have gathered so far.
_FINISHERS = 8
_BUSY_SECONDS = 0.02
# As many as came together the last time are waited for, but not for longer than this: a group costs as much as some
# objects do, and whoever sends many at once has others on their way meanwhile.
_GATHER_SECONDS = 0.005
_MOST_TOGETHER = 128


@dataclass(frozen=True)
class Later(Generic[T]):
    """What work returns whose end is dear, but costs hardly more for many at once.

    `together` takes the items of all that came in one turn and returns, for each, its result or its error; `then`
    makes of that what the caller waits for.
    """

    item: Any
    together: Callable[[Sequence[Any]], Sequence[Any]]
    then: Callable[[Any], T]


class _Task:
    """Work that waits for its turn."""

    __slots__ = ("arguments", "future", "result", "work")

    def __init__(
        self, work: Callable[..., Any], arguments: tuple[Any, ...], future: asyncio.Future[Any]
    ) -> None:
        self.work = work
        self.arguments = arguments
        self.future = future
        self.result: Any = None

    def run(self) -> None:
        try:
            self.result = self.work(*self.arguments)
        except BaseException as error:
            self.result = _Failure(error)


class _Failure:
    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Clerk:
    """A thread of the desk, and the lock that it waits for when it is not needed."""

    def __init__(self) -> None:
        self.signal = threading.Lock()
        self.signal.acquire()


class Desk:
    """A queue with at most so many threads, one of which takes from it. Used from one event loop."""

    def __init__(self, threads: int, *, is_prompt: bool = True) -> None:
        # Whether work can be prompt at all: not where a network lies between us and the data.
        self._is_prompt = is_prompt
        self._lock = threading.Lock()
        self._queue: deque[_Task] = deque()
        self._idle: list[_Clerk] = []
        self._left = threads
        # Who takes from the queue. The others wait for the disk, or for being called.
        self._on_duty: _Clerk | None = None
        self._finished = 0
        self._seen = -1
        self._is_watched = False
        self._is_called = False
        # What the loop does itself, and from when on it may.
        self._prompt: deque[_Task] = deque()
        self._trusts_from = 0.0
        # What is waiting to be finished together, and who does that.
        self._late: list[_Task] = []
        self._idle_finishers: list[_Clerk] = []
        self._finishers_left = _FINISHERS
        self._finishing = 0
        self._finishing_since = 0.0
        # The finisher that waits for others to come, and how many have to be there.
        self._gathering: _Clerk | None = None
        self._expected = 0

    async def run(self, work: Callable[..., T | Later[T]], *arguments: Any) -> T:
        """The result of work that may wait for the disk or the database, but usually does not for long."""
        loop = asyncio.get_running_loop()
        task = _Task(work, arguments, loop.create_future())
        self._enqueue([task], loop)
        result: T = await task.future
        return result

    async def run_promptly(self, work: Callable[..., T | Later[T]], *arguments: Any) -> T:
        """The same for work that waits for nothing, unless the disk does not keep up."""
        if not self._is_prompt:
            return await self.run(work, *arguments)
        loop = asyncio.get_running_loop()
        task = _Task(work, arguments, loop.create_future())
        self._prompt.append(task)
        if not self._is_called:
            # A little later: what else is ready joins the same turn.
            self._is_called = True
            loop.call_soon(self._work_off, loop)
        result: T = await task.future
        return result

    def _enqueue(self, tasks: Iterable[_Task], loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._queue.extend(tasks)
            if self._on_duty is None:
                self._call_next()
        if not self._is_watched:
            self._is_watched = True
            loop.call_later(_STALL_SECONDS, self._look, loop)

    def _work_off(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do what can be done promptly."""
        self._is_called = False
        done: list[_Task] = []
        late: list[_Task] = []
        now = time.monotonic()
        until = now + _TURN_SECONDS
        while self._prompt and now < until and self._trusts_disk(now):
            task = self._prompt.popleft()
            if task.future.cancelled():
                continue
            began = now
            task.run()
            (late if isinstance(task.result, Later) else done).append(task)
            now = time.monotonic()
            if now - began > _PROMPT_SECONDS:
                self._trusts_from = now + _DISTRUST_SECONDS
        if late:
            self._finish_later(late)
        _settle(done)
        if not self._prompt:
            return
        if self._trusts_disk(now):
            # Others get their turn before it goes on.
            self._is_called = True
            loop.call_soon(self._work_off, loop)
        else:
            left, self._prompt = self._prompt, deque()
            self._enqueue(left, loop)

    def _trusts_disk(self, now: float) -> bool:
        is_stuck = self._finishing and now > self._finishing_since + _PROMPT_FINISH_SECONDS
        return now >= self._trusts_from and not is_stuck

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._is_watched = bool(self._queue)
            if self._is_watched and self._seen == self._finished:
                self._call_next()
            self._seen = self._finished
        if self._is_watched:
            loop.call_later(_STALL_SECONDS, self._look, loop)

    # --- the threads ---

    def _call_next(self) -> None:
        """Put another thread on duty, if there is one. The lock is held."""
        if self._idle:
            self._on_duty = self._idle.pop()
            self._on_duty.signal.release()
        elif self._left:
            self._left -= 1
            self._on_duty = _Clerk()
            threading.Thread(target=self._serve, args=(self._on_duty,), name="desk", daemon=True).start()

    def _serve(self, me: _Clerk) -> None:
        while True:
            done, late = self._take_turn(me)
            if late:
                self._finish_later(late)
            self._deliver(done)
            if not self._stays_on_duty(me):
                me.signal.acquire()

    def _take_turn(self, me: _Clerk) -> tuple[list[_Task], list[_Task]]:
        """Do what is queued, one after the other: what is done then, and what is only done together."""
        done: list[_Task] = []
        late: list[_Task] = []
        until = time.monotonic() + _TURN_SECONDS
        while True:
            with self._lock:
                # Somebody else took over if the last one took too long.
                if not self._queue or self._on_duty is not me:
                    return done, late
                task = self._queue.popleft()
            if task.future.cancelled():
                continue
            began = time.monotonic()
            task.run()
            (late if isinstance(task.result, Later) else done).append(task)
            if time.monotonic() - began > _PROMPT_SECONDS:
                self._trusts_from = time.monotonic() + _DISTRUST_SECONDS
            self._finished += 1
            if len(done) + len(late) >= _TURN or time.monotonic() > until:
                return done, late

    def _stays_on_duty(self, me: _Clerk) -> bool:
        with self._lock:
            if self._queue and self._on_duty in (None, me):
                self._on_duty = me
                return True
            if self._on_duty is me:
                self._on_duty = None
            self._idle.append(me)
            return False

    def _deliver(self, tasks: list[_Task]) -> None:
        if not tasks:
            return
        try:
            tasks[0].future.get_loop().call_soon_threadsafe(_settle, tasks)
        except RuntimeError:
            return  # The loop is closed: nobody waits any more.

    # --- what is finished together ---

    def _finish_later(self, tasks: list[_Task]) -> None:
        with self._lock:
            self._late += tasks
            if self._gathering is not None:
                if len(self._late) >= self._expected:
                    self._gathering.signal.release()
                    self._gathering = None
                return
            if self._finishing and time.monotonic() < self._finishing_since + _BUSY_SECONDS:
                return
            if self._idle_finishers:
                self._idle_finishers.pop().signal.release()
            elif self._finishers_left:
                self._finishers_left -= 1
                threading.Thread(target=self._finish, name="finisher", daemon=True).start()

    def _finish(self) -> None:
        """Finish what has come, while the next ones gather."""
        me, count = _Clerk(), 0
        while True:
            self._gather(me, count)
            with self._lock:
                tasks, self._late = self._late[:_MOST_TOGETHER], self._late[_MOST_TOGETHER:]
                count = len(tasks)
                if tasks:
                    self._finishing += 1
                    self._finishing_since = time.monotonic()
                else:
                    self._idle_finishers.append(me)
            if not tasks:
                me.signal.acquire()
                continue
            _finish_together(tasks)
            self._deliver(tasks)
            with self._lock:
                self._finishing -= 1

    def _gather(self, me: _Clerk, count: int) -> None:
        """Wait for a moment if fewer have come than the last time: those who were answered then are on their way."""
        with self._lock:
            if not 0 < len(self._late) < count or self._gathering is not None:
                return
            self._gathering, self._expected = me, count
        if not me.signal.acquire(timeout=_GATHER_SECONDS):
            with self._lock:
                if self._gathering is me:
                    self._gathering = None
                    return
            # Called just now.
            me.signal.acquire()


def _finish_together(tasks: list[_Task]) -> None:
    groups: dict[Any, list[_Task]] = {}
    for task in tasks:
        groups.setdefault(task.result.together, []).append(task)
    for together, members in groups.items():
        waiting = [task.result for task in members]
        try:
            outcomes = together([later.item for later in waiting])
        except BaseException as error:
            outcomes = [error] * len(members)
        for task, later, outcome in zip(members, waiting, outcomes, strict=True):
            try:
                task.result = _Failure(outcome) if isinstance(outcome, BaseException) else later.then(outcome)
            except BaseException as error:
                task.result = _Failure(error)


def _settle(tasks: list[_Task]) -> None:
    for task in tasks:
        if task.future.done():
            continue  # Whoever waited has gone.
        if isinstance(task.result, _Failure):
            task.future.set_exception(task.result.error)
        else:
            task.future.set_result(task.result)
