"""Secrets in a log are overwritten with asterisks of the same length, so that offsets stay true."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

__all__ = ["Masker", "mask_bytes", "secret_forms"]

# Shorter values ("1", "yes") would blank out half of a log and hide nothing.
SHORTEST_MASKED = 6


def secret_forms(secrets: Iterable[str]) -> list[bytes]:
    """What must not be seen: every secret as it is, and as programs print it inside a dictionary or JSON.

    Longest first: a secret that contains another is masked whole.
    """
    forms: set[bytes] = set()
    for secret in secrets:
        for form in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1]):
            forms.add(form.encode("utf-8", "surrogateescape"))
    return sorted(
        (form for form in forms if len(form) >= SHORTEST_MASKED), key=lambda form: (-len(form), form)
    )


class Masker:
    """Masks secrets in a stream of chunks, also where one lies across two chunks."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._values = secret_forms(secrets)
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Mask a chunk; bytes at its end that may begin a secret are held back for the next one."""
        if not self._values:
            return chunk
        data = self._mask(self._held + chunk)
        keep = self._partial(data)
        self._held = data[len(data) - keep :] if keep else b""
        return data[: len(data) - keep]

    def finish(self) -> bytes:
        """What is still held back at the end of the stream."""
        held, self._held = self._held, b""
        return held

    def apply(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Mask a whole stream."""
        for chunk in chunks:
            masked = self.feed(chunk)
            if masked:
                yield masked
        rest = self.finish()
        if rest:
            yield rest

    def _mask(self, data: bytes) -> bytes:
        for value in self._values:
            if value in data:
                data = data.replace(value, b"*" * len(value))
        return data

    def _partial(self, data: bytes) -> int:
        """How many bytes at the end could be the beginning of a secret."""
        longest = 0
        for value in self._values:
            for size in range(min(len(value) - 1, len(data)), longest, -1):
                if data.endswith(value[:size]):
                    longest = size
                    break
        return longest


def mask_bytes(data: bytes, secrets: Iterable[str]) -> bytes:
    """Mask secrets in bytes that are a whole."""
    masker = Masker(secrets)
    return masker.feed(data) + masker.finish()
