"""How often one address may fail to sign in."""

from __future__ import annotations

import threading
from collections import OrderedDict

from trainshed.model.errors import NotAuthenticated

__all__ = ["AttemptLimit"]


class AttemptLimit:
    """Counts failures per address, in this process. (The count per user name is the password service's.)"""

    def __init__(self, most: int = 30, seconds: float = 300.0, most_addresses: int = 4096) -> None:
        self._most = most
        self._seconds = seconds
        self._most_addresses = most_addresses
        self._lock = threading.Lock()
        # address -> (failures, when the first of them was)
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def check(self, address: str, now: float) -> None:
        """Refuse an address that failed too often of late."""
        with self._lock:
            count, since = self._failures.get(address, (0, now))
        if count >= self._most and now - since < self._seconds:
            raise NotAuthenticated(
                "There were too many failed attempts.",
                hint="Wait a few minutes, or use a login link.",
                code="too_many_attempts",
            )

    def note_failure(self, address: str, now: float) -> None:
        """Remember a failure."""
        with self._lock:
            count, since = self._failures.pop(address, (0, now))
            self._failures[address] = (1, now) if now - since >= self._seconds else (count + 1, since)
            while len(self._failures) > self._most_addresses:
                self._failures.popitem(last=False)
