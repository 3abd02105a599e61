"""What people can be told about jobs, and how a message to a program is signed."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from trainshed.model.errors import InvalidInput, suggest
from trainshed.model.phase import Phase

__all__ = [
    "DEFAULT_EVENTS",
    "EVENTS",
    "MOST_TRIES",
    "check_address",
    "check_events",
    "event_of_phase",
    "retry_delay",
    "sign",
]

# `restarted`: an attempt has failed, or was preempted, and the job goes back to the queue. `preempted`: others got its
# machines. `idle`: it uses neither its devices nor the processor.
EVENTS = ("completed", "failed", "stopped", "restarted", "preempted", "idle", "held")
DEFAULT_EVENTS = ("completed", "failed", "stopped")
# After so many tries a message is given up; the delays between them add up to about a day.
MOST_TRIES = 12
_FIRST_DELAY, _LONGEST_DELAY = 10.0, 4 * 3600.0
_EMAIL = re.compile(r"[^@\s<>,;\"]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")
_BY_PHASE = {Phase.COMPLETED: "completed", Phase.FAILED: "failed", Phase.TERMINATED: "stopped"}


def event_of_phase(phase: Phase) -> str:
    """The event of a job's end."""
    return _BY_PHASE[phase]


def check_events(events: Sequence[str]) -> tuple[str, ...]:
    """The events, each one once and known."""
    for event in events:
        if event not in EVENTS:
            raise InvalidInput(
                f"There is no event '{event[:60]}'.",
                hint=f"{suggest(event, EVENTS)} Known: {', '.join(EVENTS)}.",
                where="events",
            )
    if not events:
        raise InvalidInput("No event is named.", hint=f"Known: {', '.join(EVENTS)}.", where="events")
    return tuple(event for event in EVENTS if event in events)


def check_address(address: str) -> str:
    """The kind of an address: `webhook` for an http(s) URL, `email` for a mail address."""
    if address.startswith(("http://", "https://")):
        try:
            parts = urlsplit(address)
            is_fine = bool(parts.hostname) and parts.port != 0 and not parts.username and not parts.password
        except ValueError:
            is_fine = False
        if not is_fine or len(address) > 2000 or not address.isprintable() or " " in address:
            raise InvalidInput(
                "The URL cannot be used.",
                hint="Write https://host/path, without a user name or password in it.",
                where="address",
            )
        return "webhook"
    if _EMAIL.fullmatch(address):
        return "email"
    raise InvalidInput(
        f"'{address[:100]}' is neither a URL nor a mail address.",
        hint="Write https://host/path or name@example.org.",
        where="address",
    )


def sign(secret: str, time: int, body: bytes) -> str:
    """The signature of a message: the receiver computes the same and compares."""
    digest = hmac.new(secret.encode(), str(time).encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"t={time},v1={digest}"


def retry_delay(tries: int) -> float:
    """Seconds until a message is tried again that could not be delivered so many times."""
    return min(_LONGEST_DELAY, _FIRST_DELAY * 3.0 ** max(0, tries - 1))
