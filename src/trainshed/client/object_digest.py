"""What the ETag of an object says about its bytes, also of one that came in parts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

__all__ = ["ObjectDigest", "choose_part_size", "combine_etags", "equal_parts", "parse_pieces"]

_CHUNK = 1 << 20
_SMALLEST_PART = 16 << 20
_MOST_PARTS = 9000


def choose_part_size(size: int) -> int:
    """How large the parts of an object of that size are, in whole MiB."""
    return max(_SMALLEST_PART, -(-size // _MOST_PARTS // _CHUNK) * _CHUNK)


def equal_parts(size: int, part_size: int) -> list[int]:
    """The sizes of the parts of an object that is cut evenly."""
    whole, rest = divmod(size, part_size)
    return [part_size] * whole + ([rest] if rest or not whole else [])


def combine_etags(etags: Sequence[str]) -> str:
    """The ETag of an object from those of its parts, as S3 makes it."""
    digests = b"".join(bytes.fromhex(etag) for etag in etags)
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(etags)}"


def parse_pieces(text: str) -> list[int]:
    """The sizes of an object's parts, as the store tells them: `16777216x3,1000`."""
    sizes: list[int] = []
    for run in filter(None, text.split(",")):
        size, _, count = run.partition("x")
        if not size.isdecimal() or not (count or "1").isdecimal() or len(sizes) + int(count or 1) > 10_000:
            return []
        sizes += [int(size)] * int(count or 1)
    return sizes


class ObjectDigest:
    """Hashes bytes as they pass, in pieces of these sizes (none: as a whole)."""

    def __init__(self, sizes: Iterable[int] = ()) -> None:
        self._sizes: Iterator[int] = iter(list(sizes))
        self._is_whole = True
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._etags: list[str] = []
        self._left = next(self._sizes, -1)
        if self._left >= 0:
            self._is_whole = False

    def update(self, data: bytes) -> None:
        """Take the next bytes."""
        if self._is_whole:
            self._md5.update(data)
            return
        view = memoryview(data)
        while view:
            if self._left <= 0:
                self._close_piece()
                if self._left < 0:
                    # More bytes than were told: the whole will not match.
                    self._md5.update(view)
                    return
                continue
            self._md5.update(view[: self._left])
            taken = min(self._left, len(view))
            self._left -= taken
            view = view[taken:]

    def _close_piece(self) -> None:
        self._etags.append(self._md5.hexdigest())
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._left = next(self._sizes, -1)

    def hexdigest(self) -> str:
        """The ETag that an object of these bytes has."""
        if self._is_whole:
            return self._md5.hexdigest()
        if self._left >= 0:
            self._close_piece()
        return combine_etags(self._etags)

    def read(self, file: BinaryIO, size: int) -> int:
        """Take so many bytes of a file, fewer at its end; returns how many."""
        left = size
        while left > 0 and (piece := file.read(min(_CHUNK, left))):
            self.update(piece)
            left -= len(piece)
        return size - left
