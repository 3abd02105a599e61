"""What every store can do, built from a few operations that each kind of store has of its own."""

import collections
import os
import tempfile
import threading
from queue import Queue

from moxing.framework.file.errors import MoxFileNameDuplicateException

__all__ = ["CHUNK", "Found", "Info", "ObjectStore", "read_pieces", "run_in_threads"]

CHUNK = 4 << 20

# kind: "file", "folder" (something lies below the key), or "" where there is nothing.
Info = collections.namedtuple("Info", "kind size modified_at")
Found = collections.namedtuple("Found", "key size modified_at")


class ObjectStore:
    """Objects in buckets. Kinds of stores have: info, list_page, read, write, append, make_folder, remove, copy."""

    def walk(self, bucket, prefix):
        """All objects below a prefix, in the order of their keys."""
        after = ""
        while True:
            objects, _, after = self.list_page(bucket, prefix, "", after)
            yield from objects
            if not after:
                return

    def read_all(self, bucket, key):
        """The bytes of an object, piece by piece."""
        start, size = 0, None
        while size is None or start < size:
            data, size = self.read(bucket, key, start, CHUNK)
            if not data:
                return
            start += len(data)
            yield data

    def download(self, bucket, key, path):
        """Bring an object into a file, which appears when it is whole."""
        folder = os.path.dirname(path) or "."
        os.makedirs(folder, exist_ok=True)
        if os.path.isdir(path):
            raise MoxFileNameDuplicateException(f"'{path}' is a folder, '{bucket}/{key}' a file")
        number, part = tempfile.mkstemp(prefix=".mox-", suffix=".part", dir=folder)
        try:
            with os.fdopen(number, "wb") as file:
                for piece in self.read_all(bucket, key):
                    file.write(piece)
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(part, 0o666 & ~mask)
            os.replace(part, path)
        except BaseException:
            os.unlink(part)
            raise

    def upload(self, path, bucket, key):
        """Store a file as an object."""
        with open(path, "rb") as file:
            self.write(bucket, key, read_pieces(file), os.fstat(file.fileno()).st_size)

    def download_tree(self, bucket, prefix, path, threads):
        """Bring all that lies below a prefix into a folder."""
        os.makedirs(path, exist_ok=True)

        def fetch(found):
            name = found.key[len(prefix) :]
            if not _is_plain(name):
                return
            target = os.path.join(path, *name.split("/"))
            try:
                if name.endswith("/"):
                    os.makedirs(target, exist_ok=True)
                elif name:
                    self.download(bucket, found.key, target)
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                raise MoxFileNameDuplicateException(f"a file and a folder clash at '{target}'") from None

        run_in_threads(self.walk(bucket, prefix), fetch, threads)

    def upload_tree(self, path, bucket, prefix, threads):
        """Store all that lies in a folder below a prefix."""

        def send(name):
            if name.endswith("/"):
                self.make_folder(bucket, prefix + name)
            else:
                self.upload(os.path.join(path, name), bucket, prefix + name)

        run_in_threads(walk_folder(path), send, threads)

    def copy_tree(self, bucket, prefix, to_bucket, to_prefix, threads):
        """Copy all that lies below a prefix to another."""
        run_in_threads(
            list(self.walk(bucket, prefix)),
            lambda found: self.copy(bucket, found.key, to_bucket, to_prefix + found.key[len(prefix) :]),
            threads,
        )

    def remove_tree(self, bucket, prefix):
        """Remove all that lies below a prefix."""
        run_in_threads(self.walk(bucket, prefix), lambda found: self.remove(bucket, found.key), 8)


def walk_folder(path):
    """Relative names of all files of a folder, and of its empty folders with a `/` behind."""
    for folder, folders, files in os.walk(path, followlinks=False):
        below = os.path.relpath(folder, path)
        below = "" if below == "." else below.replace(os.sep, "/") + "/"
        if below and not folders and not files:
            yield below
        for name in files:
            # What is no file (a pipe, a dangling link) has no bytes to store.
            if os.path.isfile(os.path.join(folder, name)):
                yield below + name


def read_pieces(file):
    """A file's bytes in pieces."""
    while True:
        data = file.read(CHUNK)
        if not data:
            return
        yield data


def run_in_threads(items, work, threads):
    """Work on items in a few threads, with few of them in memory; the first error stops all and is raised."""
    waiting, errors = Queue(maxsize=64), []

    def serve():
        while True:
            item = waiting.get()
            if item is None:
                return
            if not errors:
                try:
                    work(item[0])
                except BaseException as error:
                    errors.append(error)

    started = []
    try:
        for item in items:
            if errors:
                break
            if len(started) < max(1, min(threads, 32)):
                started.append(threading.Thread(target=serve, daemon=True))
                started[-1].start()
            waiting.put((item,))
    finally:
        for _ in started:
            waiting.put(None)
        for thread in started:
            thread.join()
    if errors:
        raise errors[0]


def _is_plain(name):
    """Whether a key's rest can be a path: no step of it leads up or nowhere."""
    parts = name.rstrip("/").split("/") if name else []
    return all(part not in ("", ".", "..") and "\0" not in part for part in parts)
