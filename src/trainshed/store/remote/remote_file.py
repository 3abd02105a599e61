"""Reading an object of the platform as if it were a file."""

from __future__ import annotations

import io
from typing import Any

from trainshed.model.errors import Unavailable
from trainshed.store.records import ObjectInfo
from trainshed.store.remote.wire import Answer, PlatformWire

__all__ = ["RemoteFile"]

_TRIES = 5


class RemoteFile(io.RawIOBase):
    """The bytes of one state of an object, from `start` to `end`. A read that breaks off goes on behind."""

    def __init__(self, wire: PlatformWire, path: str, info: ObjectInfo, start: int, end: int) -> None:
        self._wire = wire
        self._path = path
        self.info = info
        self._at = start
        self._end = end
        self._answer: Answer | None = None

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read as much as is there, 0 at the end."""
        view = memoryview(buffer)[: max(0, self._end - self._at)]
        if not view:
            return 0
        for _ in range(_TRIES):
            try:
                count = self._body().readinto(view)
            except ConnectionError:
                count = 0
            if count:
                self._at += count
                return count
            self._drop()
        raise Unavailable(
            f"Reading '{self.info.key}' from the platform's store broke off.",
            hint="Can the node still reach the platform?",
            code="store_unreachable",
        )

    def _body(self) -> Answer:
        if self._answer is None:
            headers = {"range": f"bytes={self._at}-{self._end - 1}", "if-match": f'"{self.info.etag}"'}
            self._answer = self._wire.stream("GET", self._path, {"key": self.info.key}, headers=headers)
        return self._answer

    def _drop(self) -> None:
        if self._answer is not None:
            self._answer.close()
            self._answer = None

    def close(self) -> None:
        """Let go of the connection."""
        self._drop()
        super().close()
