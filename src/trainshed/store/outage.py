"""How long to wait for an external store that cannot be reached."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trainshed.model.errors import TrainshedError

__all__ = ["GIVEN_UP", "Patience"]

# The code of a fault after which nobody need try again.
GIVEN_UP = "store_given_up"
_SAY_EVERY = 60.0


@dataclass
class Patience:
    """Wait for an external store that is away, up to `seconds`, unless `give_up` says that there is no use.

    Beside a job nobody else can do the work meanwhile: a store that is back after some minutes must find the job
    still there. `say` is told about it now and then. An outage is waited for once, however many requests it meets: what
    comes after that time fails at once, until the store is heard again.
    """

    seconds: float = 0.0
    give_up: Callable[[], bool] = lambda: False
    say: Callable[[str], None] = lambda text: None
    _said_at: float = field(default=float("-inf"), repr=False)
    _away_since: float = field(default=float("inf"), repr=False)

    def wait(self, since: float, seconds: float, reason: str) -> bool:
        """Wait a little; tells whether another try is worth it. `since` is when the first one was made."""
        self._away_since = min(self._away_since, since)
        if time.monotonic() - self._away_since >= self.seconds or self.give_up():
            return False
        if time.monotonic() - self._said_at >= _SAY_EVERY:
            self._said_at = time.monotonic()
            self.say(f"{reason} Waiting for it.")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.give_up():
                return False
            time.sleep(min(0.5, max(0.0, end - time.monotonic())))
        return True

    def note_heard(self) -> None:
        """The store has answered, or is to be waited for anew."""
        self._away_since = float("inf")

    def mark(self, fault: TrainshedError) -> TrainshedError:
        """The fault of a store that did not answer; with a code of its own where it has been waited for long enough."""
        if self.seconds and time.monotonic() - self._away_since >= self.seconds:
            fault.code = GIVEN_UP
        return fault
