"""Errors that a user may see, each with a stable code, one sentence and the next step.

TrainshedError
├── InvalidInput        a value that was given cannot be used           400
├── NotAuthenticated    no credential, or one that is unknown or expired 401
├── NotAllowed          the caller may not do this                       403
├── NotFound            the thing named does not exist (or is hidden)    404
├── Conflict            the thing exists already, or its state forbids it 409
├── TooLarge            a limit or quota would be passed                 413
├── Unavailable         a part of the platform cannot be reached now     503
└── HostUnfit           this machine lacks something the platform needs  500
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "Conflict",
    "HostUnfit",
    "InvalidInput",
    "NotAllowed",
    "NotAuthenticated",
    "NotFound",
    "TooLarge",
    "TrainshedError",
    "Unavailable",
    "error_from_dict",
    "suggest",
]


class TrainshedError(Exception):
    """Something went wrong that we can explain."""

    status = 500
    code = "error"

    def __init__(self, message: str, *, hint: str = "", code: str | None = None, where: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.message}" + (f" {self.hint}" if self.hint else "")

    def to_dict(self) -> dict[str, str]:
        """The form in which every surface of the platform sends an error."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "where": self.where}


class InvalidInput(TrainshedError):
    """A value that was given cannot be used; nothing was changed."""

    status = 400
    code = "invalid_input"


class NotAuthenticated(TrainshedError):
    """The caller is unknown."""

    status = 401
    code = "not_authenticated"


class NotAllowed(TrainshedError):
    """The caller is known but may not do this."""

    status = 403
    code = "not_allowed"


class NotFound(TrainshedError):
    """The thing does not exist, or the caller may not know that it does."""

    status = 404
    code = "not_found"


class Conflict(TrainshedError):
    """The state of the thing forbids the change."""

    status = 409
    code = "conflict"


class TooLarge(TrainshedError):
    """A limit or quota would be passed."""

    status = 413
    code = "too_large"


class Unavailable(TrainshedError):
    """A part of the platform cannot be reached at this moment."""

    status = 503
    code = "unavailable"


class HostUnfit(TrainshedError):
    """This machine lacks something that the platform needs."""

    status = 500
    code = "host_unfit"


_BY_STATUS: dict[int, type[TrainshedError]] = {
    kind.status: kind
    for kind in (InvalidInput, NotAuthenticated, NotAllowed, NotFound, Conflict, TooLarge, Unavailable)
}


def error_from_dict(status: int, data: dict[str, str]) -> TrainshedError:
    """The error that a server sent, as the exception it was there."""
    kind = _BY_STATUS.get(status, TrainshedError)
    return kind(
        data.get("message") or f"The server answered with status {status}.",
        hint=data.get("hint", ""),
        code=data.get("code") or kind.code,
        where=data.get("where", ""),
    )


def suggest(word: str, known: Iterable[str]) -> str:
    """A hint that names the closest known word, or lists the known ones when none is close."""
    import difflib

    choices = sorted(known)
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.6)
    if close:
        return f"Did you mean '{close[0]}'?"
    return f"Known: {', '.join(choices)}." if choices else ""
