"""Trying again what a busy or a distant store did not do at once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from trainshed.model.errors import Unavailable

__all__ = ["with_patience"]

T = TypeVar("T")

TRIES = 5
_FIRST_WAIT = 0.1
_LONGEST_WAIT = 3.0
# Faults that pass: others write, a connection broke, the endpoint restarts, a byte was lost on the way.
_PASSING = frozenset({"store_busy", "store_unreachable", "connection_lost", "checksum_mismatch"})


def with_patience(work: Callable[[], T]) -> T:
    """Do the work, and again after ever longer pauses when the store could not, for a reason that may pass."""
    for attempt in range(TRIES):
        try:
            return work()
        except Unavailable as error:
            if error.code not in _PASSING or attempt == TRIES - 1:
                raise
        # Never in step with others.
        time.sleep(min(_LONGEST_WAIT, _FIRST_WAIT * 2**attempt) * (0.75 + random.random() / 2))
    raise AssertionError("unreachable")
