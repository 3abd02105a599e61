"""Bytes on their way into the embedded store: an object, or a part of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from trainshed.model.errors import TrainshedError
from trainshed.store.embedded.transactions import UNCERTAIN
from trainshed.store.pending_upload import PendingUpload
from trainshed.store.rules import check_digest

__all__ = ["Reception", "Sink"]

T = TypeVar("T")


class Sink(Protocol):
    """Where the bytes go: a blob of their own, or a place in a larger file."""

    @property
    def id(self) -> str:
        """The name of the blob; empty when there is none."""
        ...

    @property
    def size(self) -> int: ...

    @property
    def md5(self) -> str: ...

    @property
    def sha256(self) -> str: ...

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def publish(self) -> list[Path]:
        """Make the bytes durable; returns the folders to sync before the index row is."""
        ...

    def settle(self) -> None:
        """The index row is committed."""
        ...

    def discard(self) -> None:
        """Leave nothing behind."""
        ...


class Reception(PendingUpload, Generic[T]):
    """Takes bytes until `commit`; leaving the `with` block without it discards them."""

    def __init__(self, sink: Sink, record: Callable[[Sink, Sequence[Path], dict[str, str]], T]) -> None:
        self._blob = sink
        self._record = record
        self._is_over = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes."""
        self._blob.write(data)

    def commit(
        self,
        *,
        expected_md5: str = "",
        expected_sha256: str = "",
        attributes: dict[str, str] | None = None,
    ) -> T:
        """Make what was written visible and durable, in place of what was there before."""
        folders = self.publish(expected_md5, expected_sha256)
        try:
            result = self._record(self._blob, folders, attributes or {})
        except TrainshedError as error:
            self.conclude(error)
            raise
        self.conclude(result)
        return result

    def publish(self, expected_md5: str, expected_sha256: str) -> list[Path]:
        """Make the bytes durable if they are the right ones; returns the folders to sync before the index row is."""
        blob = self._blob
        self._is_over = True
        try:
            check_digest("MD5", blob.md5, expected_md5)
            if expected_sha256:
                check_digest("SHA-256", blob.sha256, expected_sha256)
            return blob.publish()
        except BaseException:
            blob.discard()
            raise

    def conclude(self, outcome: object) -> None:
        """Clear up after the index row was committed, or refused."""
        if not isinstance(outcome, Exception):
            self._blob.settle()
        # When nobody can say whether the row was committed, the blob must stay: once this process is gone, the
        # sweep asks the index and knows. The same holds for an interrupt, which never comes here.
        elif isinstance(outcome, TrainshedError) and outcome.code not in UNCERTAIN:
            self._blob.discard()

    def abort(self) -> None:
        """Discard what was written. Does nothing after `commit`."""
        if not self._is_over:
            self._is_over = True
            self._blob.discard()
