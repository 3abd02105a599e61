"""Reading a tar from an untrusted stream: only plain files, in bounded memory.

The standard library's reader loads extended headers of any size and follows every kind of entry; what a
client sends here may be hostile, so this one knows regular files and folders and refuses everything else.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol, runtime_checkable

from trainshed.model.errors import InvalidInput
from trainshed.model.names import check_relative_path

__all__ = ["Readable", "TarFile", "read_tar"]

_BLOCK = 512
_CHUNK = 1 << 20
_LARGEST_HEADER = 64 * 1024
_EXTENDED = {tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME}


@runtime_checkable
class Readable(Protocol):
    """Anything that hands out bytes."""

    def read(self, size: int = -1, /) -> bytes: ...


@dataclass(frozen=True)
class TarFile:
    """A regular file of the tar. Its `chunks` must be taken before the next file is asked for."""

    path: str
    executable: bool
    size: int
    chunks: Iterator[bytes]


def read_tar(source: Readable | Iterable[bytes]) -> Iterator[TarFile]:
    """The files of a tar, plain or gzip-compressed, in the order of the stream."""
    return _read_files(_Blocks(_unpacked(source)))


def _broken(reason: object) -> InvalidInput:
    return InvalidInput(
        f"The code upload is not a whole tar: {reason}.",
        hint="Upload it again.",
        code="bad_tar",
        where="code",
    )


class _IterableFile(io.RawIOBase):
    """An iterable of pieces, read as a file."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


class _ReadableFile(io.RawIOBase):
    """Anything with `read`, as a file that can be buffered."""

    def __init__(self, source: Readable) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._source.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _unpacked(source: Readable | Iterable[bytes]) -> BinaryIO:
    raw = _ReadableFile(source) if isinstance(source, Readable) else _IterableFile(source)
    buffered = io.BufferedReader(raw, _CHUNK)
    try:
        start = buffered.peek(2)[:2]
    except OSError as fault:
        raise _broken(fault) from None
    if start == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=buffered)  # type: ignore[return-value]
    return buffered


class _Blocks:
    """The stream in blocks of 512 bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def exactly(self, size: int) -> bytes:
        try:
            data = self._file.read(size)
        except (OSError, EOFError, zlib.error) as fault:
            raise _broken(fault) from None
        if len(data) != size:
            raise _broken("it ends too early")
        return data

    def chunks(self, size: int) -> Iterator[bytes]:
        left = size
        while left:
            piece = self.exactly(min(_CHUNK, left))
            left -= len(piece)
            yield piece
        self.exactly(-size % _BLOCK)


def _read_files(blocks: _Blocks) -> Iterator[TarFile]:
    name, size = "", -1
    while True:
        header = blocks.exactly(_BLOCK)
        if not header.strip(b"\0"):
            return
        try:
            entry = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        except tarfile.HeaderError as fault:
            raise _broken(fault) from None
        if entry.type in _EXTENDED:
            if not 0 <= entry.size <= _LARGEST_HEADER:
                raise _broken("an extended header is too large")
            data = b"".join(blocks.chunks(entry.size))
            if entry.type == tarfile.GNUTYPE_LONGNAME:
                name = data.rstrip(b"\0").decode("utf-8", "surrogateescape")
            elif entry.type == tarfile.XHDTYPE:
                name, size = _read_records(data)
            continue
        path, length = name or entry.name, entry.size if size < 0 else size
        name, size = "", -1
        path = path.removeprefix("./")
        if entry.type == tarfile.DIRTYPE:
            if path.rstrip("/") not in ("", "."):
                _check(path.rstrip("/"))
            continue
        if entry.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or length < 0:
            raise InvalidInput(
                f"'{path[:120]}' in the code upload is not a regular file.",
                hint="Links and devices cannot be part of the code; copy what they point to.",
                code="bad_code_file",
                where="code",
            )
        _check(path)
        chunks = blocks.chunks(length)
        yield TarFile(path, bool(entry.mode & 0o100), length, chunks)
        for _ in chunks:
            # What the reader left over, so that the next header is found.
            pass


def _read_records(data: bytes) -> tuple[str, int]:
    """Path and size from the records `length key=value` of an extended header."""
    name, size = "", -1
    while data:
        digits, _, _ = data.partition(b" ")
        if not digits.isdigit() or len(digits) > 6 or not 5 <= int(digits) <= len(data):
            raise _broken("an extended header cannot be read")
        record, data = data[len(digits) + 1 : int(digits)], data[int(digits) :]
        key, _, value = record.rstrip(b"\n").partition(b"=")
        if key == b"path":
            name = value.decode("utf-8", "surrogateescape")
        elif key == b"size":
            if not value.isdigit() or len(value) > 18:
                raise _broken("an extended header cannot be read")
            size = int(value)
        elif key.startswith(b"GNU.sparse"):
            raise InvalidInput(
                "A sparse file cannot be part of the code.", code="bad_code_file", where="code"
            )
    return name, size


def _check(path: str) -> None:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput("A file name in the code upload is not UTF-8.", code="bad_code_file") from None
    check_relative_path(path, "code")
