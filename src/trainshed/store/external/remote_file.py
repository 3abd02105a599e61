"""Reading an object of the endpoint as if it were a file."""

from __future__ import annotations

import io
import os
from typing import Any

from trainshed.model.errors import Unavailable
from trainshed.store.external.object_facts import read_facts
from trainshed.store.external.wire import Body, Refused, Wire
from trainshed.store.records import ObjectInfo

__all__ = ["RemoteFile", "open_remote"]

# How much of an object comes with the first request, which also tells how long it is.
_FIRST = 256 << 10
_TRIES = 5


class RemoteFile(io.RawIOBase):
    """The bytes of one version of an object, from `start` to `end`. A read that breaks off goes on behind."""

    def __init__(
        self, wire: Wire, name: str, info: ObjectInfo, begin: bytes, start: int = 0, end: int | None = None
    ) -> None:
        self._wire = wire
        self._name = name
        self.info = info
        # The bytes from `start` on that are known already.
        self._begin = begin
        self._start = start
        self._end = max(start, info.size if end is None else min(end, info.size))
        self._at = start
        self._body: Body | None = None
        # Where the bytes under way stand in the object.
        self._body_at = -1

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read as much as is there, 0 at the end."""
        view = memoryview(buffer)[: max(0, self._end - self._at)]
        if not view:
            return 0
        at = self._at - self._start
        known = self._begin[at : at + len(view)]
        if known:
            view[: len(known)] = known
            self._at += len(known)
            return len(known)
        for last in (False,) * (_TRIES - 1) + (True,):
            body = self._body_from(self._at)
            try:
                count = body.readinto(view)
            except ConnectionError as error:
                self._drop()
                if last:
                    raise _broken(self.info, str(error)) from error
                continue
            if count:
                self._at += count
                self._body_at = self._at
                return count
            self._drop()
        raise _broken(self.info, "it ended too early")

    def _body_from(self, position: int) -> Body:
        if self._body is not None and self._body_at == position:
            return self._body
        self._drop()
        headers = {"range": f"bytes={position}-{self._end - 1}", "if-match": f'"{self.info.etag}"'}
        try:
            self._body = self._wire.stream("GET", self._name, headers=headers)
        except Refused as refused:
            if refused.status in (404, 412, 416):
                raise Unavailable(
                    f"The object '{self.info.key}' was changed while it was read.",
                    hint="Read it again.",
                    code="object_changed",
                ) from None
            raise _broken(self.info, str(refused)) from refused
        self._body_at = position
        return self._body

    def _drop(self) -> None:
        if self._body is not None:
            self._body.close()
        self._body = None

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move within the file."""
        base = {os.SEEK_SET: self._start, os.SEEK_CUR: self._at, os.SEEK_END: self._end}[whence]
        self._at = max(self._start, base + offset)
        return self._at - self._start

    def tell(self) -> int:
        """Where the next read begins, counted from the start."""
        return self._at - self._start

    def close(self) -> None:
        """Give the connection back."""
        if not self.closed:
            self._drop()
        super().close()


def open_remote(
    wire: Wire, bucket: str, key: str, name: str, start: int = 0, length: int | None = None
) -> RemoteFile:
    """Open an object by asking for its first bytes: a small one is read by a single request.

    Raises `Refused` with the status 404 where there is none.
    """
    wanted = _FIRST if length is None else min(length, _FIRST)
    end = None if length is None else start + length
    try:
        if not wanted:
            raise Refused(416, "InvalidRange", "")
        answer = wire.ask("GET", name, headers={"range": f"bytes={start}-{start + wanted - 1}"})
    except Refused as refused:
        if refused.status != 416:
            raise
        # No byte is there to begin with.
        answer = wire.ask("HEAD", name)
    info = read_facts(bucket, key, answer.headers)
    # An endpoint may send all of a small object, whatever was asked for.
    begin = answer.body if answer.status == 206 else answer.body[start:]
    return RemoteFile(wire, name, info, begin, start, end)


def _broken(info: ObjectInfo, reason: str) -> Unavailable:
    return Unavailable(
        f"Reading '{info.key}' from the external store broke off: {reason}.",
        hint="Try again; if it stays so, ask an administrator to look at the endpoint.",
        code="store_unreachable",
    )
