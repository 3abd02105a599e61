"""Finds out when a node has fallen silent: no rank writes to its log and none uses the processor."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from trainshed.model.attempt import Ending

__all__ = ["HangWatch"]

_LOOK_EVERY = 5.0
# Less than so much of one core is what processes use that only wait.
_IDLE_CORES = 0.01
_MOST_NAMED = 8


class HangWatch:
    """Looks at logs and processor time now and then. `silent_since` is when the silence began, or 0.

    A node counts as silent only after the job's limit: until then nobody needs to know. Whether the job hangs is
    decided over all its nodes, because one may rightly wait for the work of another.
    """

    def __init__(self, after: float, rank_logs: Mapping[int, Path], cpu_seconds: Callable[[], float]) -> None:
        self._after = after
        self._logs = dict(rank_logs)
        self._cpu_seconds = cpu_seconds
        self._next_look = 0.0
        self._last_active = 0.0
        self._last: tuple[float, int, float] | None = None
        self.silent_since = 0.0

    def look(self, now: float) -> bool:
        """Look again, if it is time to; True when `silent_since` has changed."""
        if not self._after or now < self._next_look:
            return False
        self._next_look = now + min(_LOOK_EVERY, self._after / 4)
        written = sum(_size(path) for path in self._logs.values())
        used = self._cpu_seconds()
        if self._last is None:
            is_active = True
        else:
            then, written_then, used_then = self._last
            is_active = written != written_then or used - used_then > _IDLE_CORES * (now - then)
        self._last = (now, written, used)
        if is_active:
            self._last_active = now
        silence = now - self._last_active
        is_silent = silence >= self._after
        if is_silent == bool(self.silent_since):
            return False
        self.silent_since = time.time() - silence if is_silent else 0.0
        return True

    def ending(self, node: int, now: float) -> Ending:
        """How the node ends that was found to hang, with the rank that was heard first and never again."""
        heard = {rank: _last_written(path) for rank, path in self._logs.items()}
        first = min(heard, key=lambda rank: (heard[rank], rank), default=-1)
        words = [
            f"rank {rank} was last heard {_ago(now - moment)} ago" if moment else f"rank {rank} never wrote"
            for rank, moment in sorted(heard.items(), key=lambda item: (item[1], item[0]))[:_MOST_NAMED]
        ]
        if len(heard) > _MOST_NAMED:
            words.append(f"{len(heard) - _MOST_NAMED} more ranks later")
        return Ending(
            "failed",
            "limit",
            "hang",
            f"No rank wrote to its log or used the processor for {_ago(self._after)}: {', '.join(words)}.",
            "Look at the log of the rank that fell silent first: it waits for something that never came. "
            "Raise hang_after if such a pause is right.",
            rank=first,
            reason="hang",
            node=node,
            time=heard.get(first, 0.0) or 1.0,
        )


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return os.stat(path).st_size
    return 0


def _last_written(path: Path) -> float:
    with contextlib.suppress(OSError):
        facts = os.stat(path)
        return facts.st_mtime if facts.st_size else 0.0
    return 0.0


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
