"""Bytes on their way to the endpoint: an object, or a part of one."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any, Protocol

from trainshed.model.errors import TrainshedError
from trainshed.store.pending_upload import PendingUpload
from trainshed.store.records import ObjectInfo, Part
from trainshed.store.rules import check_digest

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["ObjectUpload", "PartReception", "PartsWriter"]

# An object up to this size is kept back until its end and sent by one request, so that its ETag is its MD5.
WHOLE_BYTES = 16 << 20
# What is larger goes in parts, while it arrives: a few of them are under way.
PART_BYTES = 8 << 20
_UNDER_WAY = 2
# 10,000 parts of one size would limit an object to 80 GB: later parts are larger.
_GROW_EVERY = 1000
_SMALL_BYTES = 64 << 10


class PartsWriter(Protocol):
    """An upload in parts, as the endpoint has it."""

    def send(self, number: int, data: bytes) -> tuple[int, str]:
        """Send a part; tells its number and ETag."""
        ...

    def complete(self, parts: list[tuple[int, str]]) -> ObjectInfo:
        """Make the object of them."""
        ...

    def abort(self) -> None:
        """Discard them."""
        ...


class _Digests:
    """The digests of bytes that come one after the other.

    OpenSSL's code for them takes longer to load than a small object to send: where nothing else wants it, small objects
    do with Python's own.
    """

    def __init__(self, with_sha256: bool) -> None:
        self._first = bytearray()
        self._md5: Any = None
        self._sha256: Any = None
        if with_sha256:
            self._load(with_sha256=True)

    def update(self, data: bytes | bytearray | memoryview) -> None:
        if self._md5 is None and len(self._first) + len(data) <= _SMALL_BYTES:
            self._first += data
            return
        if self._md5 is None:
            self._load()
        self._md5.update(data)
        if self._sha256 is not None:
            self._sha256.update(data)

    def md5(self) -> str:
        """What the MD5 of all of them is, as hexadecimal digits."""
        if self._md5 is not None:
            return str(self._md5.hexdigest())
        try:
            own = importlib.import_module("_md5")
        except ImportError:
            own = importlib.import_module("hashlib")
        return str(own.md5(self._first, usedforsecurity=False).hexdigest())

    def check(self, expected_md5: str, expected_sha256: str) -> None:
        if expected_md5:
            check_digest("MD5", self.md5(), expected_md5)
        if expected_sha256:
            found = self._sha256.hexdigest() if self._sha256 is not None else "unknown"
            check_digest("SHA-256", found, expected_sha256)

    def _load(self, *, with_sha256: bool = False) -> None:
        import hashlib

        self._md5 = hashlib.md5(self._first, usedforsecurity=False)
        self._sha256 = hashlib.sha256(self._first) if with_sha256 else None
        self._first.clear()


class ObjectUpload(PendingUpload):
    """Takes bytes until `commit`; leaving the `with` block without it discards them.

    `put` writes a whole object of that MD5, with the attributes that came late; `begin` opens an upload in parts.
    """

    def __init__(
        self,
        put: Callable[[bytearray, str, Mapping[str, str]], ObjectInfo],
        begin: Callable[[], PartsWriter],
        *,
        with_sha256: bool = False,
    ) -> None:
        self._put = put
        self._begin = begin
        self._digests = _Digests(with_sha256)
        self._held = bytearray()
        self._parts: PartsWriter | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._sent: list[Future[tuple[int, str]]] = []
        self._is_over = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes."""
        self._digests.update(data)
        self._held += data
        if len(self._held) > WHOLE_BYTES and self._parts is None:
            # Only large objects need threads, and runners elsewhere rarely send any.
            from concurrent.futures import ThreadPoolExecutor

            self._parts = self._begin()
            self._threads = ThreadPoolExecutor(_UNDER_WAY, "upload")
        while self._parts is not None and len(self._held) >= self._part_size():
            self._send(self._parts, self._part_size())

    def _part_size(self) -> int:
        return PART_BYTES << (len(self._sent) // _GROW_EVERY)

    def _send(self, parts: PartsWriter, size: int) -> None:
        assert self._threads is not None
        if len(self._sent) >= _UNDER_WAY:
            # Never more in memory than what is under way; an error ends the upload here.
            self._sent[-_UNDER_WAY].result()
        data = bytes(memoryview(self._held)[:size])
        del self._held[:size]
        self._sent.append(self._threads.submit(parts.send, len(self._sent) + 1, data))

    def commit(
        self,
        *,
        expected_md5: str = "",
        expected_sha256: str = "",
        attributes: dict[str, str] | None = None,
    ) -> ObjectInfo:
        """Make the object visible, in place of the one that had its key.

        `attributes` that come so late are only kept with an object that is sent as a whole.
        """
        try:
            self._digests.check(expected_md5, expected_sha256)
            if self._parts is None:
                info = self._put(self._held, self._digests.md5(), attributes or {})
            else:
                if self._held:
                    self._send(self._parts, len(self._held))
                info = self._parts.complete([sent.result() for sent in self._sent])
        except BaseException:
            self.abort()
            raise
        self._is_over = True
        self._end_threads()
        return info

    def abort(self) -> None:
        """Discard what was written. Does nothing after `commit`."""
        if self._is_over:
            return
        self._is_over = True
        self._end_threads()
        if self._parts is not None:
            try:
                self._parts.abort()
            except TrainshedError:
                pass  # The endpoint is away: the hourly upkeep finds what is left there.

    def _end_threads(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)


class PartReception(PendingUpload):
    """Takes the bytes of a part; a large one is kept in a file of its own until it is known to be right."""

    def __init__(
        self, send: Callable[[bytes | memoryview, Mapping[str, str]], Part], *, with_sha256: bool = False
    ) -> None:
        self._deliver = send
        self._digests = _Digests(with_sha256)
        self._size = 0
        import tempfile

        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(WHOLE_BYTES)  # noqa: SIM115

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes."""
        self._digests.update(data)
        self._file.write(data)
        self._size += len(data)

    def commit(
        self,
        *,
        expected_md5: str = "",
        expected_sha256: str = "",
        attributes: dict[str, str] | None = None,
    ) -> Part:
        """Store the part, in place of the one that had its number."""
        try:
            self._digests.check(expected_md5, expected_sha256)
            if self._size <= WHOLE_BYTES:
                self._file.seek(0)
                return self._deliver(self._file.read(), attributes or {})
            import mmap

            self._file.flush()
            with mmap.mmap(self._file.fileno(), self._size, access=mmap.ACCESS_READ) as mapped:
                view = memoryview(mapped)
                try:
                    return self._deliver(view, attributes or {})
                finally:
                    view.release()
        finally:
            self.abort()

    def abort(self) -> None:
        """Discard what was written."""
        self._file.close()
