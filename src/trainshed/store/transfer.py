"""Moving whole folders between a file system and the object store, with many files in flight at once."""

from __future__ import annotations

import os
import queue
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trainshed.model.errors import InvalidInput, NotFound, Unavailable
from trainshed.store.folder_tree import FileGone, FolderTree, safe_parts
from trainshed.store.object_store import ObjectInfo, ObjectStore

__all__ = ["Skipped", "TransferSummary", "download_tree", "upload_tree"]

T = TypeVar("T")
# Called with the number of files and of bytes moved so far.
Progress = Callable[[int, int], None]

_THREADS = 8
_IN_FLIGHT = 64
_CHUNK = 1 << 20
_SKIPPED_LISTED = 1000


@dataclass(frozen=True)
class Skipped:
    """Something that was left out of a transfer, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class TransferSummary:
    """What a transfer did. At most a thousand of the skipped are listed; all are counted."""

    files: int = 0
    bytes: int = 0
    folders: int = 0
    skipped: tuple[Skipped, ...] = ()
    skipped_count: int = 0


class _Tally:
    """Counts what the threads do."""

    def __init__(self, on_progress: Progress | None) -> None:
        self._lock = threading.Lock()
        self._on_progress = on_progress
        self._files = self._bytes = self._folders = self._skipped_count = 0
        self._skipped: list[Skipped] = []

    def add_file(self, size: int) -> None:
        with self._lock:
            self._files += 1
            self._bytes += size
            if self._on_progress is not None:
                self._on_progress(self._files, self._bytes)

    def add_folder(self) -> None:
        with self._lock:
            self._folders += 1

    def skip(self, path: str, reason: str) -> None:
        with self._lock:
            self._skipped_count += 1
            if len(self._skipped) < _SKIPPED_LISTED:
                self._skipped.append(Skipped(path, reason))

    def summary(self) -> TransferSummary:
        skipped = tuple(sorted(self._skipped, key=lambda skipped: skipped.path))
        return TransferSummary(self._files, self._bytes, self._folders, skipped, self._skipped_count)


def download_tree(
    store: ObjectStore, bucket: str, key: str, folder: Path, *, on_progress: Progress | None = None
) -> TransferSummary:
    """Bring a folder of the store (a key that is empty or ends in `/`) or one object into a local folder.

    Nothing is ever written outside the folder, and no link in it is followed; keys that cannot be file names
    are skipped and listed. Each file appears whole or not at all.
    """
    tally = _Tally(on_progress)
    folder.mkdir(parents=True, exist_ok=True)
    with FolderTree(folder) as tree:
        if key and not key.endswith("/"):
            info = store.info(bucket, key)
            _fetch(store, tree, info, key.rpartition("/")[2], tally)
            return tally.summary()

        def place(info: ObjectInfo) -> None:
            _fetch(store, tree, info, info.key[len(key) :], tally)

        objects = _without_clashes(store.walk(bucket, key), tally)
        first = next(objects, None)
        if first is None:
            if key:
                raise NotFound(
                    f"There is no folder '{key}' in the bucket '{bucket}'.",
                    hint=f"See what is there: trainshed obs ls obs://{bucket}/",
                    code="no_such_key",
                )
            store.bucket(bucket)
            return tally.summary()
        place(first)
        _in_parallel(objects, place)
    return tally.summary()


def upload_tree(
    store: ObjectStore, folder: Path, bucket: str, prefix: str, *, on_progress: Progress | None = None
) -> TransferSummary:
    """Bring what lies in a local folder into the store, below a prefix.

    Symbolic links are never followed, and only regular files are read; what is left out is listed. Empty folders
    become markers, and the executable bit is kept. A file that is still being written is taken as long as it
    is at that moment.
    """
    if prefix and not prefix.endswith("/"):
        prefix += "/"
    tally = _Tally(on_progress)
    store.bucket(bucket)
    if not folder.is_dir():
        raise InvalidInput(f"There is no folder {folder}.", hint="Give the path of a folder that exists.")
    with FolderTree(folder) as tree:

        def send(path: str) -> None:
            if path.endswith("/"):
                _send_folder(store, bucket, prefix + path, tally, path)
            else:
                _send(store, tree, path, bucket, prefix + path, tally)

        _in_parallel(tree.walk(tally.skip), send)
    return tally.summary()


def _send_folder(store: ObjectStore, bucket: str, key: str, tally: _Tally, path: str) -> None:
    if _is_key(key):
        store.put_folder(bucket, key)
        tally.add_folder()
    else:
        tally.skip(os.fsencode(path).decode(errors="replace"), "the name cannot be an object key")


def _send(store: ObjectStore, tree: FolderTree, path: str, bucket: str, key: str, tally: _Tally) -> None:
    if not _is_key(key):
        return tally.skip(os.fsencode(path).decode(errors="replace"), "the name cannot be an object key")
    try:
        file = tree.open_file(path)
    except FileGone as gone:
        return tally.skip(path, gone.reason)
    try:
        facts = os.fstat(file)
        metadata = {"mode": "755"} if facts.st_mode & stat.S_IXUSR else {}
        info = store.put(bucket, key, _read_up_to(file, facts.st_size), metadata=metadata)
    except _Unreadable as error:
        return tally.skip(path, str(error))
    finally:
        os.close(file)
    return tally.add_file(info.size)


class _Unreadable(Exception):
    """A file whose bytes the disk does not give."""


def _read_up_to(file: int, size: int) -> Iterator[bytes]:
    """The bytes of a file, as many as it had when it was opened: a growing file would have no end."""
    done = 0
    while done < size:
        try:
            data = os.pread(file, min(_CHUNK, size - done), done)
        except OSError as error:
            raise _Unreadable(f"it cannot be read: {error.strerror}") from error
        if not data:
            return
        yield data
        done += len(data)


def _fetch(store: ObjectStore, tree: FolderTree, info: ObjectInfo, path: str, tally: _Tally) -> None:
    is_folder = path.endswith("/") or not path
    parts = safe_parts(path.removesuffix("/")) if path else []
    if parts is None:
        return tally.skip(info.key, "the key cannot be a file name")
    if is_folder and info.size:
        return tally.skip(info.key, "the key names a folder, but the object has bytes")
    try:
        if is_folder:
            tree.make_folder(parts)
            return tally.add_folder()
        with tree.new_file(parts, is_executable=_is_executable(info)) as file:
            try:
                fetched = store.fetch_to_file(info.bucket, info.key, file)
            except NotFound:
                # Removed since it was listed.
                raise FileGone("it vanished from the store") from None
    except FileGone as gone:
        return tally.skip(info.key, gone.reason)
    except OSError as error:
        raise Unavailable(
            f"'{path}' cannot be written: {error.strerror or error}.",
            hint="Look at the free space and the permissions of the target folder.",
            code="target_failed",
        ) from error
    return tally.add_file(fetched.size)


def _is_executable(info: ObjectInfo) -> bool:
    try:
        return bool(int(info.metadata.get("mode", "0"), 8) & stat.S_IXUSR)
    except ValueError:
        return False


def _is_key(key: str) -> bool:
    try:
        return 1 <= len(key.encode("utf-8")) <= 1024
    except UnicodeEncodeError:
        return False


def _without_clashes(objects: Iterable[ObjectInfo], tally: _Tally) -> Iterator[ObjectInfo]:
    """Leave out what lies below a key that is itself a file: `a/b` beside `a`.

    Keys come in order, so everything between `a` and `a/...` starts with `a`: a short stack is all it takes.
    """
    files: list[str] = []
    for info in objects:
        while files and not info.key.startswith(files[-1]):
            files.pop()
        above = next((file for file in files if info.key.startswith(file + "/")), None)
        if above is not None:
            tally.skip(info.key, f"'{above}' is an object and cannot be a folder too")
            continue
        if not info.key.endswith("/"):
            files.append(info.key)
        yield info


def _in_parallel(items: Iterable[T], work: Callable[[T], None]) -> None:
    """Work on items in a few threads, with few of them in memory; the first error stops all and is raised."""
    waiting: queue.Queue[T | None] = queue.Queue(maxsize=_IN_FLIGHT)
    errors: list[BaseException] = []

    def serve() -> None:
        while (item := waiting.get()) is not None:
            if errors:
                continue
            try:
                work(item)
            except BaseException as error:
                errors.append(error)

    threads: list[threading.Thread] = []
    try:
        for item in items:
            if errors:
                break
            if len(threads) < _THREADS:
                threads.append(threading.Thread(target=serve, daemon=True))
                threads[-1].start()
            waiting.put(item)
    except BaseException as error:
        errors.append(error)
        raise
    finally:
        for _ in threads:
            waiting.put(None)
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
