"""A local folder that is read and written strictly beneath its root, whatever links someone plants in it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

__all__ = ["FileGone", "FolderTree", "safe_parts"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking: a FIFO that took a file's name between listing and opening must not hang us.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_MAX_DEPTH = 512


class FileGone(Exception):
    """A file that cannot be taken or placed; the transfer goes on without it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def safe_parts(path: str) -> list[str] | None:
    """The parts of a relative path, or None when it could lead anywhere but straight down."""
    parts = path.split("/")
    for part in parts:
        if part in ("", ".", "..") or "\0" in part or len(part.encode()) > 255:
            return None
    return parts


class FolderTree:
    """A folder held open: every step below it is taken by descriptor and never through a link.

    What root makes in a folder of another user's (a job's, say) belongs to that user too.
    """

    def __init__(self, folder: Path) -> None:
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        facts = os.fstat(self._root)
        is_foreign = os.geteuid() == 0 and facts.st_uid != 0
        self._owner = (facts.st_uid, facts.st_gid) if is_foreign else None

    def __enter__(self) -> FolderTree:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._root)

    # --- reading ---

    def walk(self, skip: Callable[[str, str], None]) -> Iterator[str]:
        """Relative paths of all regular files, and of empty folders with a `/` behind; the rest is skipped."""
        folders = [""]
        while folders:
            prefix = folders.pop()
            try:
                parts = prefix.rstrip("/").split("/") if prefix else []
                with self.open_folder(parts) as here, os.scandir(here) as entries:
                    names = [(entry.name, _kind(entry)) for entry in entries]
            except OSError as error:
                skip(_shown(prefix), f"the folder cannot be read: {error.strerror}")
                continue
            if not names and prefix:
                yield prefix
            below = []
            for name, kind in sorted(names):
                path = prefix + name
                if kind == "file":
                    yield path
                elif kind == "folder" and path.count("/") < _MAX_DEPTH:
                    below.append(path + "/")
                else:
                    skip(_shown(path), "the folder lies too deep" if kind == "folder" else kind)
            folders.extend(reversed(below))

    def open_file(self, path: str) -> int:
        """A regular file, open for reading."""
        *above, name = path.split("/")
        try:
            with self.open_folder(above) as here:
                file = os.open(name, _FILE, dir_fd=here)
        except FileNotFoundError:
            raise FileGone("it vanished during the transfer") from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise FileGone("it is a symbolic link") from None
            raise FileGone(f"it cannot be read: {error.strerror}") from None
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise FileGone("it is not a regular file")
        return file

    # --- writing ---

    def make_folder(self, parts: Sequence[str]) -> None:
        """A folder and all above it."""
        with self.open_folder(parts, make=True):
            pass

    @contextmanager
    def new_file(self, parts: Sequence[str], *, is_executable: bool = False) -> Iterator[int]:
        """A file to write, which takes its name when it is whole."""
        *above, name = parts
        with (
            self.open_folder(above, make=True) as here,
            self.new_file_in(here, name, is_executable=is_executable) as file,
        ):
            yield file

    @contextmanager
    def new_file_in(
        self, here: int, name: str, *, is_executable: bool = False, birthplace: str = ""
    ) -> Iterator[int]:
        """The same in a folder that is open already.

        While it has no name, the file may belong to another folder of the same file system, `birthplace`; that
        it is none, shows only at the end (EXDEV).
        """
        part = f".trainshed-{os.urandom(8).hex()}.part"
        file, is_nameless = _create(here, part, birthplace)
        try:
            yield file
            if self._owner:
                os.fchown(file, *self._owner)
            # Whoever wrote the bytes may have learned only then that it is executable.
            is_program = is_executable or os.fstat(file).st_mode & stat.S_IXUSR
            os.fchmod(file, 0o755 if is_program else 0o644)
            if is_nameless and _give_name(file, here, name, part):
                return
            is_nameless = False
            os.rename(part, name, src_dir_fd=here, dst_dir_fd=here)
        except IsADirectoryError:
            os.unlink(part, dir_fd=here)
            raise FileGone("a folder of that name stands in its place") from None
        except BaseException:
            if not is_nameless:
                os.unlink(part, dir_fd=here)
            raise
        finally:
            os.close(file)

    @contextmanager
    def open_folder(self, parts: Sequence[str], *, make: bool = False) -> Iterator[int]:
        """A folder below the root, open; with `make` it and all above it are made if they are missing."""
        here = os.dup(self._root)
        try:
            for part in parts:
                is_new = False
                try:
                    try:
                        below = os.open(part, _FOLDER, dir_fd=here)
                    except FileNotFoundError:
                        if not make:
                            raise
                        is_new = _make_folder(part, here)
                        below = os.open(part, _FOLDER, dir_fd=here)
                except OSError as error:
                    if make and error.errno in (errno.ENOTDIR, errno.ELOOP):
                        raise FileGone(f"'{part}' stands in its way and is not a folder") from None
                    raise
                os.close(here)
                here = below
                if is_new and self._owner:
                    os.fchown(here, *self._owner)
            yield here
        finally:
            os.close(here)


def _make_folder(name: str, above: int) -> bool:
    """Make a folder, unless another thread was faster; tells who it was."""
    try:
        os.mkdir(name, 0o755, dir_fd=above)
        return True
    except FileExistsError:
        return False


def _create(folder: int, part: str, birthplace: str) -> tuple[int, bool]:
    """A new file for writing: without any name where the file system can (nothing is left when we are killed,
    and the folder is touched once), else under the name `part`."""
    flags = os.O_WRONLY | os.O_CLOEXEC
    if birthplace:
        try:
            return os.open(birthplace, flags | os.O_TMPFILE, 0o600), True
        except OSError:
            pass  # It only was the better place.
    try:
        return os.open(".", flags | os.O_TMPFILE, 0o600, dir_fd=folder), True
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            raise
    return os.open(part, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder), False


def _give_name(file: int, folder: int, name: str, part: str) -> bool:
    """Give a nameless file its name; where that is taken, the name `part`, and False is returned."""
    source = f"/proc/self/fd/{file}"
    try:
        os.link(source, name, dst_dir_fd=folder, follow_symlinks=True)
        return True
    except FileExistsError:
        os.link(source, part, dst_dir_fd=folder, follow_symlinks=True)
        return False


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "it is a symbolic link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    if entry.is_file(follow_symlinks=False):
        return "file"
    return "it is not a regular file"


def _shown(path: str) -> str:
    return os.fsencode(path).decode(errors="replace")
