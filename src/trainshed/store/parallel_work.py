"""Work on many items in a few threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["work_in_parallel"]

T = TypeVar("T")


def work_in_parallel(items: Iterable[T], work: Callable[[T], None], count: int) -> None:
    """Work on items in a few threads, with few of them in memory; the first error stops all and is raised."""
    source = iter(items)
    taking = threading.Lock()
    errors: list[BaseException] = []

    def serve() -> None:
        try:
            while not errors:
                with taking:
                    item = next(source, None)
                if item is None:
                    return
                work(item)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(count - 1)]
    for thread in threads:
        thread.start()
    serve()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
