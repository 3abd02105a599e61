"""Files on this machine and objects in a store (`obs://` or `s3://`), through the same functions."""

from moxing.framework.file import file_io
from moxing.framework.file.copying import copy, copy_manifest, copy_parallel, rename
from moxing.framework.file.errors import (
    MoxFileNameDuplicateException,
    MoxFileNotExistsException,
    MoxFileReadException,
    MoxFileRespException,
)
from moxing.framework.file.file_io import (
    append,
    append_remote,
    exists,
    get_size,
    glob,
    is_directory,
    list_directory,
    make_dirs,
    mk_dir,
    read,
    remove,
    scan_dir,
    stat,
    walk,
    write,
)
from moxing.framework.file.file_object import File
from moxing.framework.file.shifting import shift
from moxing.framework.file.stores import set_auth

__all__ = [
    "File",
    "MoxFileNameDuplicateException",
    "MoxFileNotExistsException",
    "MoxFileReadException",
    "MoxFileRespException",
    "append",
    "append_remote",
    "copy",
    "copy_manifest",
    "copy_parallel",
    "exists",
    "file_io",
    "get_size",
    "glob",
    "is_directory",
    "list_directory",
    "make_dirs",
    "mk_dir",
    "read",
    "remove",
    "rename",
    "scan_dir",
    "set_auth",
    "shift",
    "stat",
    "walk",
    "write",
]
