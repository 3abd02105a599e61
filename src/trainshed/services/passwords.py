"""Passwords: hashed with argon2, compared slowly, and guessed only a few times."""

from __future__ import annotations

import threading
from collections import OrderedDict

from trainshed.model.errors import InvalidInput, NotAuthenticated

__all__ = ["check_password_strength", "hash_password", "verify_password"]

_SHORTEST, _LONGEST = 10, 1024
# Argon2id with 19 MiB: strong enough, and two at a time fit into a small machine's memory.
_MEMORY_KIB, _ROUNDS, _LANES = 19 * 1024, 2, 1
_at_once = threading.Semaphore(2)

_MOST_FAILURES = 10
_PAUSE_SECONDS = 300.0
_MOST_NAMES = 4096


class _Failures:
    """Counts failed attempts per user name in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def check(self, name: str, now: float) -> None:
        with self._lock:
            count, last = self._counts.get(name, (0, 0.0))
        if count >= _MOST_FAILURES and now - last < _PAUSE_SECONDS:
            raise NotAuthenticated(
                "There were too many failed attempts with this name.",
                hint=f"Try again in {_PAUSE_SECONDS / 60:.0f} minutes, or use a login link.",
                code="too_many_attempts",
            )

    def note(self, name: str, now: float, success: bool) -> None:
        with self._lock:
            count, last = self._counts.pop(name, (0, 0.0))
            if success:
                return
            self._counts[name] = (1 if now - last >= _PAUSE_SECONDS else count + 1, now)
            while len(self._counts) > _MOST_NAMES:
                self._counts.popitem(last=False)


_failures = _Failures()


def check_password_strength(password: str) -> str:
    """A password that is long enough, and not so long that hashing it is an attack."""
    if not _SHORTEST <= len(password) <= _LONGEST:
        raise InvalidInput(f"A password has {_SHORTEST} to {_LONGEST} characters.", where="password")
    return password


def hash_password(password: str) -> str:
    """The form in which a password is stored."""
    from argon2 import PasswordHasher

    with _at_once:
        hasher = PasswordHasher(time_cost=_ROUNDS, memory_cost=_MEMORY_KIB, parallelism=_LANES)
        return hasher.hash(_bytes(password))


def verify_password(name: str, password: str, stored: str, now: float) -> bool:
    """Whether the password is the stored one. An unknown user takes as long as a known one."""
    from argon2 import PasswordHasher
    from argon2.exceptions import InvalidHashError, VerificationError

    _failures.check(name, now)
    if len(password) > _LONGEST:
        return False
    if not stored:
        hash_password(password)
        _failures.note(name, now, success=False)
        return False
    matches = True
    try:
        with _at_once:
            PasswordHasher().verify(stored, _bytes(password))
    except (VerificationError, InvalidHashError):
        matches = False
    _failures.note(name, now, success=matches)
    return matches


def _bytes(password: str) -> bytes:
    return password.encode("utf-8", "surrogatepass")
