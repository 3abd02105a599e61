"""What a job may ask of the broker: reads, writes and copies in the buckets of its own workspace."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from trainshed.model.errors import InvalidInput, NotFound
from trainshed.runner.broker.job_folders import JobFolders
from trainshed.store.folder_tree import FileGone
from trainshed.store.object_store import Condition, ObjectInfo, ObjectStore
from trainshed.store.patience import with_patience
from trainshed.store.transfer import TransferSummary, download_tree, is_near, upload_tree
from trainshed.store.verification import require_bytes_of

__all__ = ["Operations"]

Answer = dict[str, Any]
Progress = Callable[[int, int], None]

LARGEST_PAGE = 1000
LARGEST_READ = 8 << 20
_CHUNK = 1 << 20
_SKIPPED_TOLD = 200


class Operations:
    """The operations by name; each takes the fields of a request and returns those of the answer.

    The rule of who may what is that of `services.buckets`, for the one caller that a job is: its workspace's
    buckets exist, all others do not. Whoever submits a job may read and write there.
    """

    def __init__(self, store: ObjectStore, workspace_id: str, folders: JobFolders) -> None:
        self._store = store
        self._workspace_id = workspace_id
        self._folders = folders
        # An append reads the old bytes and writes old and new: two at once would lose one of them.
        self._appending = threading.Lock()

    # --- looking ---

    def info(self, bucket: str, key: str) -> Answer:
        """What lies at a key: a file, a folder (something lies below it), or nothing."""
        self._check(bucket)
        if key and not key.endswith("/"):
            try:
                return {"kind": "file", **_describe(self._store.info(bucket, key))}
            except NotFound:
                key += "/"
        page = self._store.list(bucket, key, limit=1)
        if page.objects:
            found = page.objects[0]
            return {"kind": "folder", "size": 0, "modified_at": found.modified_at}
        return {"kind": "" if key else "folder", "size": 0, "modified_at": 0.0}

    def list(self, bucket: str, prefix: str, delimiter: str, after: str, limit: int) -> Answer:
        """One page of keys."""
        self._check(bucket)
        page = self._store.list(
            bucket, prefix, delimiter=delimiter, after=after, limit=max(1, min(limit, LARGEST_PAGE))
        )
        objects = [[item.key, item.size, item.modified_at] for item in page.objects]
        return {"objects": objects, "folders": list(page.folders), "next": page.next_after}

    def read(self, bucket: str, key: str, start: int, length: int) -> tuple[Answer, bytes]:
        """Some bytes of an object."""
        self._check(bucket)
        info = self._store.info(bucket, key)
        length = max(0, min(length, LARGEST_READ, info.size - start))
        if start < 0 or not length:
            return _describe(info), b""
        with self._store.open(bucket, key, start, length) as file:
            return _describe(info), file.read(length)

    # --- changing objects ---

    def write(self, bucket: str, key: str, body: Iterable[bytes]) -> Answer:
        """Store an object from bytes that the job sends."""
        self._check(bucket)
        return _describe(self._store.put(bucket, key, body))

    def append(self, bucket: str, key: str, body: Iterable[bytes]) -> Answer:
        """Put bytes behind those of an object, which is made if it is not there.

        One that was not made by appending is written anew, with its old bytes in front.
        """
        self._check(bucket)
        with self._appending:
            try:
                info = self._store.info(bucket, key)
            except NotFound:
                info = None
            grows = not self._store.bucket(bucket).versioning and (info is None or info.is_appendable)
            if grows:
                upload = self._store.append(bucket, key, info.size if info else 0)
            else:
                condition = Condition(if_match=info.etag) if info else Condition(if_none_match="*")
                upload = self._store.upload(bucket, key, condition=condition)
            with upload:
                if info is not None and not grows:
                    with self._store.open(bucket, key) as file:
                        while piece := file.read(_CHUNK):
                            upload.write(piece)
                for piece in body:
                    upload.write(piece)
                return _describe(upload.commit())

    def make_folder(self, bucket: str, key: str) -> Answer:
        """Make an empty folder; a bucket's own root is there already."""
        self._check(bucket)
        if key:
            self._store.put_folder(bucket, key)
        return {}

    def remove(self, bucket: str, key: str) -> Answer:
        """Remove one object."""
        self._check(bucket)
        return {"removed": int(self._store.delete(bucket, key))}

    def remove_tree(self, bucket: str, prefix: str) -> Answer:
        """Remove all that lies below a folder."""
        self._check(bucket)
        return {"removed": self._store.delete_prefix(bucket, _checked_folder(prefix))}

    def copy(self, bucket: str, key: str, to_bucket: str, to_key: str) -> Answer:
        """Copy an object within the store."""
        self._check(bucket, to_bucket)
        return _describe(self._store.copy(bucket, key, to_bucket, to_key))

    def copy_tree(self, bucket: str, prefix: str, to_bucket: str, to_prefix: str) -> Answer:
        """Copy a folder within the store."""
        self._check(bucket, to_bucket)
        _checked_folder(prefix), _checked_folder(to_prefix)
        return {"files": self._store.copy_prefix(bucket, prefix, to_bucket, to_prefix)}

    # --- between the store and the job's folders ---

    def download(self, bucket: str, key: str, path: str) -> Answer:
        """Bring an object into a file of the job's, which appears when it is whole."""
        self._check(bucket)
        info = self._store.info(bucket, key)
        with self._folders.open_tree(path) as (tree, parts):
            if not parts:
                raise FileGone("a folder of that name stands in its place")
            is_executable = info.metadata.get("mode") == "755"
            with tree.new_file(parts, is_executable=is_executable) as file:
                return _describe(with_patience(lambda: self._fetch(bucket, key, file)))

    def _fetch(self, bucket: str, key: str, file: int) -> ObjectInfo:
        os.lseek(file, 0, os.SEEK_SET)
        os.ftruncate(file, 0)
        found = self._store.fetch_to_file(bucket, key, file)
        if not is_near(self._store) or os.fstat(file).st_size != found.size:
            require_bytes_of(self._store, found, file)
        return found

    def download_tree(self, bucket: str, prefix: str, path: str, on_progress: Progress) -> Answer:
        """Bring what lies below a folder of the store into a folder of the job's."""
        self._check(bucket)
        _checked_folder(prefix)
        with self._folders.open_folder(path, make=True) as folder:
            # Within this machine the kernel copies; what has come over a network is compared.
            verify = not is_near(self._store)
            return _sum_up(
                download_tree(self._store, bucket, prefix, folder, on_progress=on_progress, verify=verify)
            )

    def upload(self, path: str, bucket: str, key: str) -> Answer:
        """Store a file of the job's as an object: as many bytes as it has at this moment."""
        self._check(bucket)
        with self._folders.open_tree(path) as (tree, parts):
            file = tree.open_file("/".join(parts))
        try:
            facts = os.fstat(file)
            metadata = {"mode": "755"} if facts.st_mode & stat.S_IXUSR else {}
            return _describe(
                with_patience(
                    lambda: self._store.put(bucket, key, _read_up_to(file, facts.st_size), metadata=metadata)
                )
            )
        finally:
            os.close(file)

    def upload_tree(self, path: str, bucket: str, prefix: str, on_progress: Progress) -> Answer:
        """Store what lies in a folder of the job's below a prefix; links are left out and told."""
        self._check(bucket)
        _checked_folder(prefix)
        with self._folders.open_folder(path) as folder:
            return _sum_up(upload_tree(self._store, folder, bucket, prefix, on_progress=on_progress))

    def _check(self, *buckets: str) -> None:
        for name in buckets:
            try:
                if not name.startswith(".") and self._store.bucket(name).workspace_id == self._workspace_id:
                    continue
            except NotFound:
                pass
            raise NotFound(
                f"There is no bucket '{name[:80]}'.",
                hint="A job sees the buckets of its own workspace; `trainshed obs mb` makes one.",
                code="no_such_bucket",
            )


def _describe(info: ObjectInfo) -> Answer:
    return {"size": info.size, "modified_at": info.modified_at, "etag": info.etag}


def _sum_up(summary: TransferSummary) -> Answer:
    skipped = [[_shown(item.path), item.reason] for item in summary.skipped[:_SKIPPED_TOLD]]
    return {
        "files": summary.files,
        "bytes": summary.bytes,
        "skipped": skipped,
        "skipped_count": summary.skipped_count,
    }


def _shown(path: str) -> str:
    return path.encode(errors="replace").decode()


def _checked_folder(prefix: str) -> str:
    if prefix and not prefix.endswith("/"):
        raise InvalidInput(f"'{_shown(prefix)[:120]}' is not a folder: it does not end in '/'.")
    return prefix


def _read_up_to(file: int, size: int) -> Iterator[bytes]:
    """A file's bytes, as many as it had when it was opened: a growing file would have no end."""
    done = 0
    while done < size and (data := os.pread(file, min(_CHUNK, size - done), done)):
        yield data
        done += len(data)
