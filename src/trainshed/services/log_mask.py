"""Secrets in a piece of a log are overwritten with asterisks of the same length: offsets stay true."""

from __future__ import annotations

from collections.abc import Iterable

from trainshed.model.masking import secret_forms

__all__ = ["LogMask"]

# The end of a log is not held back for a byte or two that a secret happens to begin with as well.
_SHORTEST_BEGINNING = 4


class LogMask:
    """Masks a window of a log. Every overlapping occurrence counts, so the result does not depend on where
    the window begins, as long as it has `reach` bytes more on both sides than what is shown."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._values = secret_forms(secrets)
        self.reach = max((len(value) - 1 for value in self._values), default=0)

    def apply(self, data: bytes) -> bytes:
        """The same bytes with every secret overwritten."""
        masked: bytearray | None = None
        for value in self._values:
            position = data.find(value)
            while position >= 0:
                if masked is None:
                    masked = bytearray(data)
                masked[position : position + len(value)] = b"*" * len(value)
                position = data.find(value, position + 1)
        return data if masked is None else bytes(masked)

    def open_end(self, data: bytes) -> int:
        """How many bytes at the end may be the beginning of a secret whose rest is not written yet."""
        masked = self.apply(data)
        longest = 0
        for value in self._values:
            for size in range(min(len(value) - 1, len(data)), longest, -1):
                if data.endswith(value[:size]):
                    longest = size
                    break
        if longest < _SHORTEST_BEGINNING:
            return 0
        # Nothing to hide in what is overwritten already.
        return 0 if masked.endswith(b"*" * longest) else longest
