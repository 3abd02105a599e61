"""A file or object, opened."""

import io
import os
import tempfile

from moxing.framework.file.address import is_remote, local_path, parse
from moxing.framework.file.errors import MoxFileNotExistsException
from moxing.framework.file.object_store import CHUNK
from moxing.framework.file.stores import store_of

__all__ = ["File"]

_MODES = ("r", "w", "a", "r+", "w+", "a+")


class File:
    """A file of this machine or an object of a store, used as what `open` returns.

    An object is read piece by piece as it is needed. What is written is kept on this machine and reaches the
    store at `flush()` and `close()`.
    """

    def __init__(self, name, mode="r", encoding=None, errors=None, newline=None, **others):
        self.name = name
        self.mode = mode
        plain = mode.replace("b", "").replace("t", "").replace("U", "")
        if plain not in _MODES:
            raise ValueError(f"'{mode}' is not a mode: use r, w, a, r+, w+ or a+, with b for bytes")
        self._is_text = "b" not in mode
        self._plain = plain
        self._place = parse(name) if is_remote(name) else None
        self._copy = None
        self._is_dirty = False
        options = {"encoding": encoding or "utf-8", "errors": errors, "newline": newline}
        options = options if self._is_text else {}
        if self._place is None:
            self._file = open(local_path(name), plain + ("" if self._is_text else "b"), **options)
            return
        self._store = store_of(self._place.bucket)
        if plain == "r":
            raw = io.BufferedReader(_ObjectReader(self._store, self._place), CHUNK)
        else:
            self._copy = raw = self._open_copy()
        self._file = io.TextIOWrapper(raw, **options) if self._is_text else raw

    def _open_copy(self):
        """What is written meets the store later: a file of our own until then."""
        copy = tempfile.TemporaryFile(prefix="mox-")
        place, store = self._place, self._store
        if self._plain in ("r+", "a+"):
            if store.info(place.bucket, place.key).kind == "file":
                for piece in store.read_all(place.bucket, place.key):
                    copy.write(piece)
            elif self._plain == "r+":
                raise MoxFileNotExistsException(2, "There is no such file", self.name)
            copy.flush()
            copy.seek(0, os.SEEK_SET if self._plain == "r+" else os.SEEK_END)
        # An object that is opened for writing is there from then on, like a file.
        self._is_dirty = self._plain != "r+"
        return copy

    # --- reading ---

    def read(self, n=-1):
        """The next `n` bytes or characters, or all that are left."""
        return self._file.read(n)

    def readline(self, size=-1):
        """The next line."""
        return self._file.readline(size)

    def readlines(self, sizeint=-1):
        """All lines that are left."""
        return self._file.readlines(sizeint)

    def readinto(self, buffer):
        """Read bytes into a buffer."""
        return self._file.readinto(buffer)

    def __iter__(self):
        return self

    def __next__(self):
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    # --- writing ---

    def write(self, data):
        """Write text, or bytes in a mode with `b`."""
        self._is_dirty = True
        if self._plain == "a+":
            self._file.seek(0, os.SEEK_END)
        return self._file.write(data)

    def writelines(self, sequence):
        """Write each item of a sequence."""
        for item in sequence:
            self.write(item)

    def truncate(self, size=None):
        """Cut the file off."""
        self._is_dirty = True
        return self._file.truncate(size)

    def flush(self):
        """Bring what was written to the disk, or to the store."""
        self._file.flush()
        if self._copy is None or not self._is_dirty:
            return
        place, copy = self._place, self._copy
        length = os.fstat(copy.fileno()).st_size
        pieces = _read_file(copy.fileno(), length)
        if self._plain == "a":
            if length or self._store.info(place.bucket, place.key).kind != "file":
                self._store.append(place.bucket, place.key, pieces)
            # What has arrived is not sent again.
            self._file.seek(0)
            self._file.truncate()
        else:
            self._store.write(place.bucket, place.key, pieces, length)
        self._is_dirty = False

    # --- the rest ---

    def seek(self, offset, whence=0):
        """Go to a place in the file."""
        return self._file.seek(offset, whence)

    def tell(self):
        """The place in the file."""
        return self._file.tell()

    def size(self):
        """The bytes of the whole file."""
        if self._place is not None and self._copy is None:
            return self._store.info(self._place.bucket, self._place.key).size
        if self._file.writable():
            self._file.flush()
        return os.fstat(self._file.fileno()).st_size

    def readable(self):
        """Whether it was opened for reading."""
        return self._plain == "r" or "+" in self._plain

    def writable(self):
        """Whether it was opened for writing."""
        return self._plain != "r"

    def seekable(self):
        """Whether `seek` can be used."""
        return True

    def isatty(self):
        """Never."""
        return False

    def fileno(self):
        """The descriptor of a file of this machine."""
        if self._place is not None:
            raise io.UnsupportedOperation("an object of a store has no descriptor")
        return self._file.fileno()

    @property
    def closed(self):
        """Whether it was closed."""
        return self._file.closed

    def close(self):
        """Write out what is left, and close."""
        if self._file.closed:
            return
        try:
            if self.writable():
                self.flush()
        finally:
            self._file.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.close()

    def __repr__(self):
        return f"<mox.file.File name={self.name!r} mode={self.mode!r}>"


class _ObjectReader(io.RawIOBase):
    """The bytes of an object, read by ranges."""

    def __init__(self, store, place):
        self._store, self._place, self._at = store, place, 0
        info = store.info(place.bucket, place.key)
        if info.kind != "file":
            url = f"{place.scheme}{place.bucket}/{place.key}"
            raise MoxFileNotExistsException(2, "There is no such file", url)
        self._size = info.size

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=0):
        self._at = max(0, offset + {0: 0, 1: self._at, 2: self._size}[whence])
        return self._at

    def tell(self):
        return self._at

    def readinto(self, buffer):
        wanted = min(len(buffer), self._size - self._at, CHUNK)
        if wanted <= 0:
            return 0
        data, _ = self._store.read(self._place.bucket, self._place.key, self._at, wanted)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _read_file(descriptor, size):
    """A file's bytes, without moving its place."""
    done = 0
    while done < size:
        data = os.pread(descriptor, min(CHUNK, size - done), done)
        if not data:
            return
        done += len(data)
        yield data
