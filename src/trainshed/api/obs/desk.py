"""Where the event loop has short work done: by one thread, for as long as that thread gets on with it.

Python runs one thread at a time. Two dozen threads with a small request each pass the interpreter's lock on at every
system call, and that costs more than the requests do. So they queue for one thread, which takes several at a time
and hands their results back together. Another one begins only while the first waits for the disk: it says so before
it makes writes durable (`Later`), and where it does not, the loop notices that nothing gets finished.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

__all__ = ["Desk", "Later"]

T = TypeVar("T")

# How many requests one turn takes, and how long the first of them waits at most for the others.
_TURN = 32
_TURN_SECONDS = 0.003
# Nothing finished for this long: the thread waits for something, and another one takes over.
_STALL_SECONDS = 0.01


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

    def __init__(self, threads: int) -> None:
        self._lock = threading.Lock()
        self._queue: deque[_Task] = deque()
        self._idle: list[_Clerk] = []
        self._left = threads
        # Who takes from the queue. The others wait for the disk, or for being called.
        self._on_duty: _Clerk | None = None
        self._finished = 0
        self._seen = -1
        self._is_watched = False

    async def run(self, work: Callable[..., T | Later[T]], *arguments: Any) -> T:
        """The result of work that may wait for the disk or the database, but usually does not for long."""
        loop = asyncio.get_running_loop()
        task = _Task(work, arguments, loop.create_future())
        with self._lock:
            self._queue.append(task)
            if self._on_duty is None:
                self._call_next()
        if not self._is_watched:
            self._is_watched = True
            loop.call_later(_STALL_SECONDS, self._look, loop)
        result: T = await task.future
        return result

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
            self._deliver(done)
            if late:
                # While this one waits for the disk, another one takes the next turn.
                with self._lock:
                    if self._on_duty is me:
                        self._on_duty = None
                        if self._queue:
                            self._call_next()
                _finish_together(late)
                self._deliver(late)
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
            task.run()
            (late if isinstance(task.result, Later) else done).append(task)
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
