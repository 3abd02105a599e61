"""`shift('os', 'mox')`: Python's own file functions take `obs://` and `s3://` paths as well."""

import builtins
import functools
import glob
import os
import shutil

from moxing.framework.file import copying, file_io
from moxing.framework.file.address import is_remote
from moxing.framework.file.file_object import File

__all__ = ["shift"]

_originals = {}


def shift(from_, to):
    """`shift('os', 'mox')` lets Python's functions take URLs; `shift('mox', 'os')` makes them as they were."""
    if (from_, to) == ("os", "mox"):
        if not _originals:
            for owner, name, remote in _replacements():
                original = getattr(owner, name)
                _originals[owner, name] = original
                setattr(owner, name, _make_both(original, remote))
    elif (from_, to) == ("mox", "os"):
        for (owner, name), original in _originals.items():
            setattr(owner, name, original)
        _originals.clear()
    else:
        raise ValueError(f"shift takes 'os', 'mox' or 'mox', 'os', not {from_!r}, {to!r}")


def _make_both(original, remote):
    """The function that takes URLs to our own, and everything else to Python's, whatever the arguments are."""

    @functools.wraps(original)
    def call(*arguments, **options):
        if any(is_remote(value) for value in arguments[:2]) or any(map(is_remote, options.values())):
            return remote(*arguments, **options)
        return original(*arguments, **options)

    return call


def _open(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None):
    return File(file, mode, encoding=encoding, errors=errors, newline=newline)


def _make_dirs(name, mode=0o777, exist_ok=False):
    if not exist_ok and file_io.exists(name):
        raise FileExistsError(17, "It exists already", name)
    file_io.make_dirs(name)


def _remove(path, dir_fd=None):
    if not file_io.exists(path):
        raise FileNotFoundError(2, "There is no such file", path)
    file_io.remove(path)


def _is_file(path):
    return file_io.exists(path) and not file_io.is_directory(path)


def _copy_file(src, dst, follow_symlinks=True):
    copying.copy(src, dst)
    return dst


def _copy_tree(src, dst, *arguments, **options):
    copying.copy_parallel(src, dst)
    return dst


def _remove_tree(path, ignore_errors=False, onerror=None, **options):
    if not ignore_errors and not file_io.is_directory(path):
        raise FileNotFoundError(2, "There is no such folder", path)
    file_io.remove(path, recursive=True)


def _replacements():
    return [
        (builtins, "open", _open),
        (os, "listdir", file_io.list_directory),
        (os, "makedirs", _make_dirs),
        (os, "mkdir", lambda path, mode=0o777, dir_fd=None: file_io.mk_dir(path)),
        (os, "remove", _remove),
        (os, "rename", lambda src, dst, **options: copying.rename(src, dst)),
        (os, "scandir", _scan),
        (os, "stat", lambda path, dir_fd=None, follow_symlinks=True: file_io.stat(path)),
        (os, "walk", file_io.walk),
        (os.path, "exists", file_io.exists),
        (os.path, "getsize", lambda filename: file_io.stat(filename).length),
        (os.path, "isdir", file_io.is_directory),
        (os.path, "isfile", _is_file),
        (glob, "glob", lambda pathname, recursive=False, **options: file_io.glob(pathname)),
        (shutil, "copyfile", _copy_file),
        (shutil, "copytree", _copy_tree),
        (shutil, "rmtree", _remove_tree),
    ]


class _Scan:
    """What `os.scandir` returns: an iterator that can be closed."""

    def __init__(self, entries):
        self._entries = entries

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._entries)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        """Nothing is left open."""


def _scan(path):
    return _Scan(iter(file_io.scan_dir(path)))
