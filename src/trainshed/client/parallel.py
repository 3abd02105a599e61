"""Working on many things at once with little of them in memory."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["run_in_parallel"]

T = TypeVar("T")


def run_in_parallel(items: Iterable[T], work: Callable[[T], None], threads: int = 8) -> None:
    """Do `work` for every item in a few threads; the first error stops all and is raised."""
    waiting: queue.Queue[tuple[T] | None] = queue.Queue(maxsize=threads * 4)
    errors: list[BaseException] = []

    def serve() -> None:
        while (item := waiting.get()) is not None:
            if errors:
                continue
            try:
                work(item[0])
            except BaseException as error:
                errors.append(error)

    workers: list[threading.Thread] = []
    try:
        for item in items:
            if errors:
                break
            if len(workers) < threads:
                workers.append(threading.Thread(target=serve, daemon=True))
                workers[-1].start()
            waiting.put((item,))
    except BaseException as error:
        # Also an interrupt from the keyboard: what is queued must not go on.
        errors.append(error)
        raise
    finally:
        for _ in workers:
            waiting.put(None)
        for worker in workers:
            worker.join()
    if errors:
        raise errors[0]
