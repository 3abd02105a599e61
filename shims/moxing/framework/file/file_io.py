"""Reading, writing and looking at single files and folders, here or in a store."""

import collections
import glob as local_glob
import os
import posixpath
import re
import shutil
import stat as stat_bits

from moxing.framework.file.address import is_remote, local_path, parse
from moxing.framework.file.errors import (
    MoxFileNameDuplicateException,
    MoxFileNotExistsException,
    MoxFileReadException,
    MoxFileRespException,
    _MoxFileBaseRespException,
)
from moxing.framework.file.stores import set_auth, store_of

__all__ = [
    "MoxFileNameDuplicateException",
    "MoxFileNotExistsException",
    "MoxFileReadException",
    "MoxFileRespException",
    "_MoxFileBaseRespException",
    "append",
    "append_remote",
    "exists",
    "get_size",
    "glob",
    "is_directory",
    "list_directory",
    "make_dirs",
    "mk_dir",
    "read",
    "remove",
    "scan_dir",
    "set_auth",
    "stat",
    "walk",
    "write",
]

# Scripts set these to tune MoXing. Copies here find their own number of threads; the names are kept.
NUMBER_OF_PROCESSES = _NUMBER_OF_PROCESSES = 8
_LARGE_FILE_METHOD = 1
_LARGE_FILE_TASK_NUM = 2

Stat = collections.namedtuple("Stat", "length mtime_nsec is_directory")


class FileStat(Stat):
    """What is known of a file or folder: MoXing's names, and those of `os.stat`."""

    __slots__ = ()

    st_size = property(lambda self: self.length)
    st_mtime_ns = property(lambda self: self.mtime_nsec)
    st_mtime = property(lambda self: self.mtime_nsec / 1e9)
    st_mode = property(
        lambda self: stat_bits.S_IFDIR | 0o755 if self.is_directory else stat_bits.S_IFREG | 0o644
    )


class DirEntry:
    """An entry of a folder in a store, with what `os.DirEntry` has."""

    def __init__(self, name, path, facts):
        self.name = name
        self.path = path
        self._facts = facts

    def is_dir(self, follow_symlinks=True):
        """Whether it is a folder."""
        return self._facts.is_directory

    def is_file(self, follow_symlinks=True):
        """Whether it is a file."""
        return not self._facts.is_directory

    def is_symlink(self):
        """Never: a store has no links."""
        return False

    def stat(self, follow_symlinks=True):
        """Size and time."""
        return self._facts

    def __fspath__(self):
        return self.path

    def __repr__(self):
        return f"<DirEntry {self.name!r}>"


# --- looking ---


def exists(url):
    """Whether there is a file or folder."""
    if not is_remote(url):
        return os.path.exists(local_path(url))
    return _kind(url) != ""


def is_directory(url):
    """Whether there is a folder."""
    if not is_remote(url):
        return os.path.isdir(local_path(url))
    return _kind(url) == "folder"


def stat(url):
    """Size, time and kind of a file or folder."""
    if not is_remote(url):
        try:
            found = os.stat(local_path(url))
        except FileNotFoundError as error:
            raise MoxFileNotExistsException(*error.args) from None
        return FileStat(found.st_size, found.st_mtime_ns, stat_bits.S_ISDIR(found.st_mode))
    place = parse(url)
    info = _look(place)
    if not info.kind:
        raise MoxFileNotExistsException(2, "There is no such file or folder", url)
    return FileStat(info.size, int(info.modified_at * 1e9), info.kind == "folder")


def get_size(url, recursive=False):
    """The bytes of a file, or of all files of a folder. (A folder without `recursive` has none of its own.)"""
    if not is_remote(url):
        path = local_path(url)
        if not os.path.isdir(path):
            return os.path.getsize(path)
        found = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
        return sum(os.path.getsize(name) for name in found if os.path.isfile(name))
    facts = stat(url)
    if not facts.is_directory or not recursive:
        return facts.length
    place = parse(url)
    return sum(found.size for found in store_of(place.bucket).walk(place.bucket, place.prefix))


def list_directory(url, recursive=False, remove_sep=True, skip_file=False, skip_dir=False):
    """The names in a folder, as `os.listdir` gives them; with `recursive` the paths of all below it.

    With `remove_sep=False` a folder in a store is told by the `/` behind its name.
    """
    if not is_remote(url):
        return _list_local(local_path(url), recursive, skip_file, skip_dir)
    place = parse(url)
    files, folders = [], []
    if recursive:
        above = set()
        for found in store_of(place.bucket).walk(place.bucket, place.prefix):
            name = found.key[len(place.prefix) :]
            parts = name.split("/")
            above.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
            if name and not name.endswith("/"):
                files.append(name)
        folders = sorted(above - {""})
    else:
        for name, facts in _entries(place):
            (folders if facts.is_directory else files).append(name)
    if not files and not folders and not exists(url):
        raise MoxFileNotExistsException(2, "There is no such folder", url)
    ending = "" if remove_sep else "/"
    return sorted(([] if skip_file else files) + ([] if skip_dir else [name + ending for name in folders]))


def scan_dir(url):
    """The entries of a folder, as `os.scandir` gives them."""
    if not is_remote(url):
        return os.scandir(local_path(url))
    place = parse(url)
    return (DirEntry(name, place.below(name), facts) for name, facts in _entries(place))


def walk(url, topdown=True, onerror=None, followlinks=False):
    """Every folder below a path with the names in it, as `os.walk` gives them."""
    if not is_remote(url):
        for step in os.walk(local_path(url), topdown, onerror, followlinks):
            yield step
        return
    place = parse(url)
    files, folders = [], []
    for name, facts in _entries(place):
        (folders if facts.is_directory else files).append(name)
    if topdown:
        yield url, folders, files
    for name in folders:
        for step in walk(place.below(name), topdown):
            yield step
    if not topdown:
        yield url, folders, files


def glob(url):
    """The paths that match a pattern (`*`, `?`, `[...]`, and `**` for folders of any depth)."""
    if not is_remote(url):
        return local_glob.glob(local_path(url))
    place = parse(url)
    fixed = re.split(r"[*?\[]", place.key)[0]
    prefix = fixed[: fixed.rfind("/") + 1]
    pattern = re.compile("/".join(_translate(part) for part in place.key.rstrip("/").split("/")) + "$")
    names = set()
    for found in store_of(place.bucket).walk(place.bucket, prefix):
        parts = found.key.rstrip("/").split("/")
        names.update("/".join(parts[:depth]) for depth in range(1, len(parts) + 1))
    return [f"{place.scheme}{place.bucket}/{name}" for name in sorted(names) if pattern.match(name)]


# --- reading and writing ---


def read(url, client_id=None, binary=False):
    """The content of a file: text, or bytes with `binary`."""
    if not is_remote(url):
        with open(local_path(url), "rb") as file:
            data = file.read()
    else:
        place = parse(url)
        data = b"".join(store_of(place.bucket).read_all(place.bucket, place.key))
    return data if binary else data.decode("utf-8")


def write(url, data, binary=False):
    """Write a file, in place of what was there."""
    data = _as_bytes(data)
    if not is_remote(url):
        with open(local_path(url), "wb") as file:
            file.write(data)
        return
    place = parse(url)
    store_of(place.bucket).write(place.bucket, place.key, [data] if data else [], len(data))


def append(url, data, binary=False):
    """Write behind what a file has; it is made if it is not there."""
    data = _as_bytes(data)
    if not is_remote(url):
        with open(local_path(url), "ab") as file:
            file.write(data)
        return
    place = parse(url)
    store_of(place.bucket).append(place.bucket, place.key, [data] if data else [])


def append_remote(src_url, dst_url, client_id=None):
    """Write one file's content behind another's."""
    source, target = parse(src_url), parse(dst_url)
    pieces = store_of(source.bucket).read_all(source.bucket, source.key)
    store_of(target.bucket).append(target.bucket, target.key, pieces)


def make_dirs(url):
    """Make a folder and all above it."""
    if not is_remote(url):
        os.makedirs(local_path(url), exist_ok=True)
        return
    place = parse(url)
    if _look(place).kind == "file" and not url.endswith("/"):
        raise MoxFileNameDuplicateException(f"'{url}' is a file")
    store_of(place.bucket).make_folder(place.bucket, place.prefix)


def mk_dir(url):
    """Make a folder in one that is there."""
    if not is_remote(url):
        os.mkdir(local_path(url))
        return
    place = parse(url)
    above = posixpath.dirname(place.key.rstrip("/"))
    if above and not is_directory(f"{place.scheme}{place.bucket}/{above}"):
        raise OSError(2, "There is no folder above it", url)
    make_dirs(url)


def remove(url, recursive=False):
    """Remove a file; with `recursive` also a folder with all in it. Nothing happens where nothing fits."""
    if not is_remote(url):
        path = local_path(url)
        if os.path.isdir(path) and not os.path.islink(path):
            if recursive:
                shutil.rmtree(path)
        elif os.path.lexists(path):
            os.remove(path)
        return
    place = parse(url)
    store = store_of(place.bucket)
    if place.key and not place.key.endswith("/") and _look(place).kind == "file":
        store.remove(place.bucket, place.key)
    elif recursive:
        # A whole bucket has no folder to name: its content goes, the bucket stays.
        store.remove_tree(place.bucket, place.prefix)


# --- helpers ---


def _look(place):
    return store_of(place.bucket).info(place.bucket, place.key)


def _kind(url):
    try:
        return _look(parse(url)).kind
    except MoxFileRespException as error:
        if error.resp.status == 404:
            return ""
        raise


def _entries(place):
    """Names and facts of what lies in a folder of a store."""
    store, after = store_of(place.bucket), ""
    while True:
        objects, folders, after = store.list_page(place.bucket, place.prefix, "/", after)
        for found in objects:
            name = found.key[len(place.prefix) :]
            if name:
                yield name, FileStat(found.size, int(found.modified_at * 1e9), False)
        for folder in folders:
            name = folder[len(place.prefix) :].rstrip("/")
            if name:
                yield name, FileStat(0, 0, True)
        if not after:
            return


def _list_local(path, recursive, skip_file, skip_dir):
    if not recursive:
        names = sorted(os.listdir(path))
    else:
        names = sorted(
            os.path.relpath(os.path.join(folder, name), path)
            for folder, folders, files in os.walk(path)
            for name in folders + files
        )
    if not skip_file and not skip_dir:
        return names
    return [
        name for name in names if not (skip_dir if os.path.isdir(os.path.join(path, name)) else skip_file)
    ]


def _translate(part):
    """A name's pattern as a regular expression; a star stops at the end of a name, as in a shell."""
    if part == "**":
        return ".*"
    pieces = re.split(r"(\*|\?|\[!?\]?[^\]]*\])", part)
    wild = {"*": "[^/]*", "?": "[^/]"}
    for position, piece in enumerate(pieces):
        if position % 2 == 0:
            pieces[position] = re.escape(piece)
        elif piece in wild:
            pieces[position] = wild[piece]
        else:
            inner = piece[1:-1].replace("\\", "\\\\").replace("[", "\\[")
            pieces[position] = f"[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"
    return "".join(pieces)


def _as_bytes(data):
    return data.encode("utf-8") if isinstance(data, str) else bytes(data)
