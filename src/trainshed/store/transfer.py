"""Moving whole folders between a file system and the object store, with many files in flight at once."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from trainshed.model.errors import InvalidInput, NotFound, Unavailable
from trainshed.store.file_copy import copy_in_steps
from trainshed.store.folder_tree import FileGone, FolderTree, safe_parts
from trainshed.store.object_store import ObjectInfo, ObjectStore
from trainshed.store.parallel_work import work_in_parallel
from trainshed.store.patience import with_patience
from trainshed.store.snapshot import is_executable
from trainshed.store.tally import Progress, Skipped, Tally, TransferSummary
from trainshed.store.verification import has_bytes_of, require_bytes_of

__all__ = ["Skipped", "TransferSummary", "download_tree", "is_near", "upload_tree"]

# A store of this machine is as fast as its processors and its disk, which both want to be kept busy; another one
# answers late, but many at once.
_THREADS_NEAR = max(4, min(8, os.cpu_count() or 4))
_THREADS_FAR = 16
# Most of an upload's time is waiting for the disk to say that it has the bytes.
_THREADS_UP = 8
_CHUNK = 1 << 20
# From this size on a file is copied in steps, so that a copy can be watched and ended.
_LARGE = 64 << 20


def download_tree(
    store: ObjectStore,
    bucket: str,
    key: str,
    folder: Path,
    *,
    on_progress: Progress | None = None,
    only_changed: bool = False,
    verify: bool = True,
) -> TransferSummary:
    """Bring a folder of the store (a key that is empty or ends in `/`) or one object into a local folder.

    Nothing is ever written outside the folder, and no link in it is followed; keys that cannot be file names
    are skipped and listed. Each file appears whole, compared with its ETag (unless `verify` is off: then with
    its size), or not at all. What fails for a reason that may pass is tried again. With `only_changed`, files
    that have the object's bytes already stay as they are: what a second try costs is reading them.
    """
    tally = Tally(on_progress)
    folder.mkdir(parents=True, exist_ok=True)
    with FolderTree(folder) as tree:
        if key and not key.endswith("/"):
            info = with_patience(lambda: store.info(bucket, key))
            _fetch(store, tree, info, key.rpartition("/")[2], tally, only_changed, verify)
            return tally.summary()

        def place(info: ObjectInfo) -> None:
            _fetch(store, tree, info, info.key[len(key) :], tally, only_changed, verify)

        if not store.list(bucket, key, limit=1).objects:
            if key:
                raise NotFound(
                    f"There is no folder '{key}' in the bucket '{bucket}'.",
                    hint=f"See what is there: trainshed obs ls obs://{bucket}/",
                    code="no_such_key",
                )
            return tally.summary()
        if is_near(store) and not verify and not only_changed:
            _copy_near(store, bucket, key, tree, tally, place)
        else:
            objects = _without_clashes(store.walk(bucket, key), tally)
            work_in_parallel(objects, place, _THREADS_NEAR if is_near(store) else _THREADS_FAR)
    return tally.summary()


def _copy_near(
    store: ObjectStore,
    bucket: str,
    key: str,
    tree: FolderTree,
    tally: Tally,
    place: Callable[[ObjectInfo], None],
) -> None:
    """The way of a store on this machine: many small files at once, the others one by one."""
    from trainshed.store.embedded.near_copy import Group, copy_group, group_by_folder, walk_near
    from trainshed.store.embedded.store import EmbeddedStore

    assert isinstance(store, EmbeddedStore)

    def copy(group: Group) -> None:
        alone = group.objects
        if group.names:
            try:
                alone = copy_group(tree, group, tally.add_file, tally.skip, store.birthplace())
            except OSError as error:
                raise _target_failed("/".join(group.above), error) from error
        for one in alone:
            place(one.info)

    objects = _without_clashes(walk_near(store, bucket, key), tally)
    work_in_parallel(group_by_folder(objects, len(key)), copy, _THREADS_NEAR)


def upload_tree(
    store: ObjectStore,
    folder: Path,
    bucket: str,
    prefix: str,
    *,
    on_progress: Progress | None = None,
    only_changed: bool = False,
    is_wanted: Callable[[str], bool] = lambda path: True,
) -> TransferSummary:
    """Bring what lies in a local folder, or what is wanted of it, into the store, below a prefix.

    Symbolic links are never followed, and only regular files are read; what is left out is listed. Empty folders
    become markers, and the executable bit is kept. A file that is still being written is taken as long as it
    is at that moment. With `only_changed`, files whose bytes are in the store already are not sent again: what
    a second try after a failure costs is reading them.
    """
    if prefix and not prefix.endswith("/"):
        prefix += "/"
    tally = Tally(on_progress)
    store.bucket(bucket)
    if not folder.is_dir():
        raise InvalidInput(f"There is no folder {folder}.", hint="Give the path of a folder that exists.")
    with FolderTree(folder) as tree:

        def send(path: str) -> None:
            if path.endswith("/"):
                _send_folder(store, bucket, prefix + path, tally, path)
            else:
                _send(store, tree, path, bucket, prefix + path, tally, only_changed)

        paths = filter(is_wanted, tree.walk(tally.skip))
        if is_near(store):
            _send_near(store, tree, paths, bucket, prefix, tally, only_changed, send)
        else:
            work_in_parallel(paths, send, _THREADS_UP)
    return tally.summary()


def _send_near(
    store: ObjectStore,
    tree: FolderTree,
    paths: Iterable[str],
    bucket: str,
    prefix: str,
    tally: Tally,
    only_changed: bool,
    send: Callable[[str], None],
) -> None:
    """The way into a store on this machine: small files many at once, the others one by one."""
    from trainshed.store.embedded.near_upload import group_paths, send_group
    from trainshed.store.embedded.store import EmbeddedStore

    assert isinstance(store, EmbeddedStore)

    def send_all(group: list[str]) -> None:
        for path in send_group(store, tree, group, bucket, prefix, tally.add_file, only_new=only_changed):
            send(path)

    work_in_parallel(group_paths(paths), send_all, _THREADS_NEAR)


def _send_folder(store: ObjectStore, bucket: str, key: str, tally: Tally, path: str) -> None:
    if _is_key(key):
        with_patience(lambda: store.put_folder(bucket, key))
        tally.add_folder()
    else:
        tally.skip(os.fsencode(path).decode(errors="replace"), "the name cannot be an object key")


def _send(
    store: ObjectStore, tree: FolderTree, path: str, bucket: str, key: str, tally: Tally, only_changed: bool
) -> None:
    if not _is_key(key):
        return tally.skip(os.fsencode(path).decode(errors="replace"), "the name cannot be an object key")
    try:
        file = tree.open_file(path)
    except FileGone as gone:
        return tally.skip(path, gone.reason)
    try:
        facts = os.fstat(file)
        metadata = {"mode": "755"} if facts.st_mode & stat.S_IXUSR else {}
        if only_changed and _is_stored(store, bucket, key, file, facts.st_size, metadata):
            return tally.add_unchanged()
        told = 0

        def pieces() -> Iterator[bytes]:
            nonlocal told
            for piece in _read_up_to(file, facts.st_size):
                yield piece
                if facts.st_size >= _LARGE:
                    tally.add_bytes(len(piece))
                    told += len(piece)

        def put() -> ObjectInfo:
            nonlocal told
            if told:
                tally.add_bytes(-told)
                told = 0
            return store.put(bucket, key, pieces(), metadata=metadata)

        info = with_patience(put)
    except _Unreadable as error:
        return tally.skip(path, str(error))
    finally:
        os.close(file)
    return tally.add_file(info.size, told)


def _is_stored(
    store: ObjectStore, bucket: str, key: str, file: int, size: int, metadata: dict[str, str]
) -> bool:
    """Whether an object has the very bytes of a file."""
    try:
        info = with_patience(lambda: store.info(bucket, key))
    except NotFound:
        return False
    if info.size != size or info.metadata != metadata or info.is_appendable:
        return False
    try:
        return has_bytes_of(store, info, file)
    except OSError as error:
        raise _Unreadable(f"it cannot be read: {error.strerror}") from error


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


def _fetch(
    store: ObjectStore,
    tree: FolderTree,
    info: ObjectInfo,
    path: str,
    tally: Tally,
    only_changed: bool,
    verify: bool,
) -> None:
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
        if only_changed and _is_here(store, tree, info, path):
            return tally.add_unchanged()
        with tree.new_file(parts, is_executable=is_executable(info.metadata)) as file:
            try:
                found, told = with_patience(lambda: _fill(store, info, file, tally, verify))
            except NotFound:
                # Removed since it was listed.
                raise FileGone("it vanished from the store") from None
            if is_executable(found.metadata) and not is_executable(info.metadata):
                # Lists of some stores do not tell.
                os.fchmod(file, 0o755)
    except FileGone as gone:
        return tally.skip(info.key, gone.reason)
    except OSError as error:
        raise _target_failed(path, error) from error
    return tally.add_file(found.size, told)


def _fill(
    store: ObjectStore, info: ObjectInfo, file: int, tally: Tally, verify: bool
) -> tuple[ObjectInfo, int]:
    """Write an object into a file, from the file's beginning; returns what it is, and how many bytes were told."""
    told = 0

    def tell(count: int) -> None:
        nonlocal told
        told += count
        tally.add_bytes(count)

    try:
        os.lseek(file, 0, os.SEEK_SET)
        os.ftruncate(file, 0)
        if info.size < _LARGE:
            found = store.fetch_to_file(info.bucket, info.key, file)
        else:
            found = _fetch_in_steps(store, info, file, tell)
        if verify or os.fstat(file).st_size != found.size:
            require_bytes_of(store, found, file, lambda: tally.add_bytes(0))
    except BaseException:
        if told:
            tally.add_bytes(-told)
        raise
    return found, told


def _is_here(store: ObjectStore, tree: FolderTree, info: ObjectInfo, path: str) -> bool:
    """Whether a file has the bytes of the object, and its executable bit."""
    try:
        file = tree.open_file(path)
    except FileGone:
        return False
    try:
        if not has_bytes_of(store, info, file):
            return False
        is_program = bool(os.fstat(file).st_mode & stat.S_IXUSR)
        # Lists of some stores do not tell.
        return is_program == is_executable(info.metadata) or is_program == is_executable(
            with_patience(lambda: store.info(info.bucket, info.key)).metadata
        )
    except NotFound:
        return False
    finally:
        os.close(file)


def _fetch_in_steps(
    store: ObjectStore, info: ObjectInfo, target: int, tick: Callable[[int], None]
) -> ObjectInfo:
    """Copy a large object into an open file, step by step; tells what it is."""
    found, source = store.open_object(info.bucket, info.key)
    with source:
        try:
            descriptor = source.fileno()
        except OSError:
            while piece := source.read(_CHUNK):
                view = memoryview(piece)
                while view:
                    view = view[os.write(target, view) :]
                tick(len(piece))
        else:
            copy_in_steps(descriptor, target, found.size, tick)
    return found


def _is_key(key: str) -> bool:
    try:
        return 1 <= len(key.encode("utf-8")) <= 1024
    except UnicodeEncodeError:
        return False


def _target_failed(path: str, error: OSError) -> Unavailable:
    return Unavailable(
        f"'{path}' cannot be written: {error.strerror or error}.",
        hint="Look at the free space and the permissions of the target folder.",
        code="target_failed",
    )


class _HasKey(Protocol):
    @property
    def key(self) -> str: ...


Keyed = TypeVar("Keyed", bound=_HasKey)


def _without_clashes(objects: Iterable[Keyed], tally: Tally) -> Iterator[Keyed]:
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


def is_near(store: ObjectStore) -> bool:
    """Whether the store's bytes lie on this machine, so that the kernel copies them."""
    from trainshed.store.embedded.store import EmbeddedStore

    return isinstance(store, EmbeddedStore)
