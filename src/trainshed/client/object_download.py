"""Bringing an object into a local file: continued after a break, also after the end of the program."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from trainshed.client.object_digest import ObjectDigest
from trainshed.client.object_wire import TRIES
from trainshed.model.errors import Conflict, Unavailable

if TYPE_CHECKING:
    from trainshed.client.objects import ObjectEntry

__all__ = ["Beginning", "Stream", "download_file", "is_unfinished"]

# From this size on, what has come is worth keeping for the next try.
_WORTH_KEEPING = 8 << 20
_PART_NAME = re.compile(r"\..+\.[0-9a-f]{12}\.(part|etag)")


class Beginning:
    """What is there of an object already: so many bytes of the object with that ETag."""

    def __init__(self, etag: str = "", size: int = 0, file: BinaryIO | None = None) -> None:
        self.etag = etag
        self.size = size
        self._file = file

    def take(self, digest: ObjectDigest) -> None:
        """Hash it as if it had just come."""
        if self._file is not None:
            self._file.seek(0)
            digest.read(self._file, self.size)


# Gives the bytes of the object behind a beginning; what is known of it goes to the callback before the first byte.
Stream = Callable[[Beginning, Callable[["ObjectEntry"], None]], Iterator[bytes]]


def is_unfinished(name: str) -> bool:
    """Whether a file of this name is a download that was not finished."""
    return _PART_NAME.fullmatch(name) is not None


def download_file(
    stream: Stream, identity: str, path: Path, on_bytes: Callable[[int], None] | None
) -> ObjectEntry:
    """Bring an object (`identity` tells it from all others) into a file, which appears whole and checked or not at
    all. What came before a break stays beside it, hidden, until the next try."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mark = hashlib.sha256(identity.encode()).hexdigest()[:12]
    part = path.with_name(f".{path.name[:100]}.{mark}.part")
    with _owned(part) as (part, file, may_keep):
        note = part.with_suffix(".etag")
        for left in range(TRIES - 1, -1, -1):
            try:
                entry = _fill(stream, file, note, on_bytes, may_keep)
                break
            except Conflict as error:
                # Overwritten in the middle: what we have is a part of something that is gone.
                if error.code != "object_changed" or not left:
                    raise
            except Unavailable as error:
                if error.code != "checksum_mismatch" or not left:
                    raise
            if on_bytes:
                on_bytes(-file.tell())
            _forget(file, note)
        if entry.metadata.get("mode") == "755":
            part.chmod(0o755)
        file.flush()
        _set_time(part, entry.metadata.get("mtime", ""))
        part.replace(path)
        note.unlink(missing_ok=True)
    return entry


def _fill(
    stream: Stream, file: BinaryIO, note: Path, on_bytes: Callable[[int], None] | None, may_keep: bool
) -> ObjectEntry:
    begun = _read_beginning(file, note) if may_keep else Beginning()
    if begun.size and on_bytes:
        on_bytes(begun.size)
    found: list[ObjectEntry] = []

    def meet(entry: ObjectEntry) -> None:
        if not found and may_keep and entry.size >= _WORTH_KEEPING and begun.etag != entry.etag:
            note.write_text(entry.etag, "ascii")
        found[:] = [entry]

    file.seek(begun.size)
    file.truncate()
    for piece in stream(begun, meet):
        file.write(piece)
    return found[0]


def _read_beginning(file: BinaryIO, note: Path) -> Beginning:
    try:
        etag = note.read_text("ascii")
    except (OSError, ValueError):
        return Beginning()
    # The last byte is asked for again: there is an answer then, even if all has come.
    size = file.seek(0, os.SEEK_END) - 1
    return Beginning(etag, size, file) if size > 0 and etag else Beginning()


def _forget(file: BinaryIO, note: Path) -> None:
    note.unlink(missing_ok=True)
    file.seek(0)
    file.truncate()


@contextlib.contextmanager
def _owned(part: Path) -> Iterator[tuple[Path, BinaryIO, bool]]:
    """The part file of this download alone, and whether what it holds may be continued. It stays only if it is
    worth it."""
    may_keep = True
    file = _open_alone(part)
    if file is None:
        # Somebody else brings the same object to the same place at the same time.
        may_keep = False
        part = part.with_name(f".{part.name[1:].rpartition('.')[0][:-12]}{secrets.token_hex(6)}.part")
        file = part.open("w+b")
    note = part.with_suffix(".etag")
    try:
        yield part, file, may_keep
    except BaseException:
        file.flush()
        if not may_keep or not note.exists():
            part.unlink(missing_ok=True)
            note.unlink(missing_ok=True)
        raise
    finally:
        file.close()


def _open_alone(path: Path) -> BinaryIO | None:
    try:
        import fcntl
    except ImportError:
        # No such locks on this system: every download for itself.
        return None
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        file = os.fdopen(descriptor, "r+b")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its owner may have given it its name between our two steps.
            if os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor)):
                return file
        except FileNotFoundError:
            pass
        except OSError:
            file.close()
            return None
        file.close()


def _set_time(path: Path, text: str) -> None:
    try:
        os.utime(path, (float(text), float(text)))
    except (ValueError, OSError, OverflowError):
        pass  # The time is a convenience for later comparisons.
