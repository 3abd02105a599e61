"""Bytes that go behind those of an object: collected here, sent as a whole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from trainshed.model.errors import TooLarge
from trainshed.store.pending_upload import PendingUpload
from trainshed.store.records import ObjectInfo
from trainshed.store.rules import check_digest

__all__ = ["AppendUpload"]

# One request carries them, and they lie in memory until then.
_LARGEST = 64 << 20


class AppendUpload(PendingUpload):
    """Takes bytes until `commit`; leaving the `with` block without it discards them."""

    def __init__(self, send: Callable[[bytes], ObjectInfo]) -> None:
        self._send = send
        self._held = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes."""
        if len(self._held) + len(data) > _LARGEST:
            raise TooLarge(
                f"More than {_LARGEST >> 20} MiB cannot be appended in one step.",
                hint="Append in smaller steps, or write the object as a whole.",
            )
        self._held += data

    def commit(
        self,
        *,
        expected_md5: str = "",
        expected_sha256: str = "",
        attributes: dict[str, str] | None = None,
    ) -> ObjectInfo:
        """Append them; the size of what comes back is the next position."""
        data = bytes(self._held)
        check_digest("MD5", hashlib.md5(data, usedforsecurity=False).hexdigest(), expected_md5)
        check_digest("SHA-256", hashlib.sha256(data).hexdigest(), expected_sha256)
        return self._send(data)

    def abort(self) -> None:
        """Discard what was written."""
        self._held.clear()
