"""Machines on which starts failed again and again by no fault of a job: they are left out for a while."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from trainshed.durable import hold_lock, write_durably

__all__ = ["BadNodes"]

_FAILURES = 3
_WITHIN_SECONDS = 3600.0
_MOST_KEPT = 20


class BadNodes:
    """Failures of machines, in a file. Losing it costs nothing but a few more failed starts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def blame(self, nodes: Mapping[str, str], now: float) -> None:
        """Note that a start failed on these machines; each with the name of that start, which counts once."""
        if not nodes:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(self._path.with_suffix(".lock")):
            book = self._read(now)
            for node, start in nodes.items():
                failures = {**book.get(node, {})}
                failures.setdefault(start, now)
                book[node] = dict(list(failures.items())[-_MOST_KEPT:])
            write_durably(self._path, book)

    def forgive(self, nodes: Iterable[str], now: float) -> None:
        """Forget the failures of machines on which a job ran."""
        if not set(nodes) & set(self._read(now)):
            return
        with hold_lock(self._path.with_suffix(".lock")):
            book = self._read(now)
            write_durably(
                self._path, {node: failures for node, failures in book.items() if node not in nodes}
            )

    def names(self, now: float) -> list[str]:
        """The machines to leave out now, by name."""
        return sorted(node for node, failures in self._read(now).items() if len(failures) >= _FAILURES)

    def _read(self, now: float) -> dict[str, dict[str, float]]:
        """The failures of the last hour, by machine and start."""
        try:
            data = json.loads(self._path.read_text("utf-8"))
            book = {
                str(node): {
                    str(start): float(time)
                    for start, time in failures.items()
                    if now - time < _WITHIN_SECONDS
                }
                for node, failures in data.items()
            }
        except (OSError, ValueError, TypeError, AttributeError):
            return {}
        return {node: failures for node, failures in book.items() if failures}
