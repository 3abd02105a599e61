"""Machines on which starts failed again and again by no fault of a job: they are left out for a while."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from trainshed.durable import write_durably

__all__ = ["BadNodes"]

_FAILURES = 3
_WITHIN_SECONDS = 3600.0
_MOST_KEPT = 20


class BadNodes:
    """Failures of machines, in a file. Losing it costs nothing but a few more failed starts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def blame(self, nodes: Iterable[str], now: float) -> None:
        """Note that a start failed on these machines."""
        book = self._read()
        for node in nodes:
            recent = [time for time in book.get(node, []) if now - time < _WITHIN_SECONDS]
            book[node] = [*recent, now][-_MOST_KEPT:]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(self._path, book)

    def forgive(self, nodes: Iterable[str]) -> None:
        """Forget the failures of machines on which a job ran."""
        book = self._read()
        if kept := set(nodes) & set(book):
            write_durably(self._path, {node: times for node, times in book.items() if node not in kept})

    def names(self, now: float) -> list[str]:
        """The machines to leave out now, by name."""
        return sorted(
            node
            for node, times in self._read().items()
            if sum(now - time < _WITHIN_SECONDS for time in times) >= _FAILURES
        )

    def _read(self) -> dict[str, list[float]]:
        try:
            data = json.loads(self._path.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}
