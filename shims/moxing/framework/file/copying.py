"""Copies of files and folders in all directions: here, to a store, from a store, within a store."""

import json
import os
import posixpath
import shutil

from moxing.framework.file.address import is_remote, local_path, parse
from moxing.framework.file.errors import MoxFileNameDuplicateException, MoxFileNotExistsException
from moxing.framework.file.file_io import exists, is_directory, read, remove
from moxing.framework.file.object_store import run_in_threads, walk_folder
from moxing.framework.file.stores import store_of

__all__ = ["copy", "copy_manifest", "copy_parallel", "rename"]


def copy(src_url, dst_url, client_id=None):
    """Copy one file. Into a folder (a path that ends in `/`, or a folder that is there) it keeps its name."""
    _copy_file(src_url, _place_in(src_url, dst_url))


def copy_parallel(src_url, dst_url, file_list=None, threads=16, is_processing=True, use_queue=True, **others):
    """Copy what lies in a folder into another folder, many files at once.

    `file_list` names the files to copy, relative to the folder. A source that is a file is copied as one.
    `is_processing` and `use_queue` are taken for MoXing's sake: threads are enough here.
    """
    if not is_directory(src_url):
        if not exists(src_url):
            raise MoxFileNotExistsException(2, "There is no such file or folder", str(src_url))
        copy(src_url, dst_url)
    elif file_list is not None:
        run_in_threads(
            file_list, lambda name: _copy_file(_join(src_url, name), _join(dst_url, name)), threads or 16
        )
    else:
        _copy_folder(src_url, dst_url, threads or 16)


def copy_manifest(manifest_url, dst, threads=16):
    """Copy the sources that a manifest (one JSON object per line) names into a folder."""
    lines = [json.loads(line) for line in read(manifest_url).splitlines() if line.strip()]
    sources = [line["source"] for line in lines if line.get("source")]
    run_in_threads(sources, lambda url: _copy_file(url, _join(dst, posixpath.basename(url))), threads)


def rename(src_url, dst_url):
    """Move a file or a folder."""
    if not is_remote(src_url) and not is_remote(dst_url):
        shutil.move(local_path(src_url), local_path(dst_url))
        return
    if not is_directory(src_url):
        _copy_file(src_url, dst_url)
        remove(src_url)
        return
    if is_remote(src_url) and is_remote(dst_url):
        source, target = parse(src_url), parse(dst_url)
        if source.bucket == target.bucket and target.prefix.startswith(source.prefix):
            raise MoxFileNameDuplicateException(f"'{dst_url}' lies in '{src_url}'")
    _copy_folder(src_url, dst_url, 16)
    remove(src_url, recursive=True)


def _copy_file(source, target):
    if is_remote(source):
        here = parse(source)
        store = store_of(here.bucket)
        if not is_remote(target):
            store.download(here.bucket, here.key, local_path(target))
            return
        there = parse(target)
        other = store_of(there.bucket)
        if other is store:
            store.copy(here.bucket, here.key, there.bucket, there.key)
        else:
            other.write(there.bucket, there.key, store.read_all(here.bucket, here.key))
    elif is_remote(target):
        there = parse(target)
        store_of(there.bucket).upload(local_path(source), there.bucket, there.key)
    else:
        folder = os.path.dirname(local_path(target))
        if folder:
            os.makedirs(folder, exist_ok=True)
        shutil.copyfile(local_path(source), local_path(target))


def _copy_folder(source, target, threads):
    if is_remote(source):
        here = parse(source)
        store = store_of(here.bucket)
        if not is_remote(target):
            store.download_tree(here.bucket, here.prefix, local_path(target), threads)
            return
        there = parse(target)
        if store_of(there.bucket) is store:
            store.copy_tree(here.bucket, here.prefix, there.bucket, there.prefix, threads)
            return
        names = [found.key[len(here.prefix) :] for found in store.walk(here.bucket, here.prefix)]
        names = [name for name in names if name and not name.endswith("/")]
    elif is_remote(target):
        there = parse(target)
        store_of(there.bucket).upload_tree(local_path(source), there.bucket, there.prefix, threads)
        return
    else:
        # Listed first: the target may lie in the source.
        names = list(walk_folder(local_path(source)))
        os.makedirs(local_path(target), exist_ok=True)
        for name in names:
            if name.endswith("/"):
                os.makedirs(_join(target, name), exist_ok=True)
        names = [name for name in names if not name.endswith("/")]
    run_in_threads(names, lambda name: _copy_file(_join(source, name), _join(target, name)), threads)


def _place_in(source, target):
    """Where a file goes: the target itself, or into it when it is a folder."""
    name = posixpath.basename(source if is_remote(source) else local_path(source))
    text = target if is_remote(target) else local_path(target)
    if text.endswith("/") or (is_remote(target) and not parse(target).key) or is_directory(target):
        return _join(text, name)
    return target


def _join(folder, name):
    if is_remote(folder):
        return parse(folder).below(name)
    return os.path.join(local_path(folder), name)
