"""Whole folders between this machine and the object store: upload, download, and only what changed."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from trainshed.client.object_digest import ObjectDigest, equal_parts
from trainshed.client.object_download import is_unfinished
from trainshed.client.object_parts import PART_SIZE_KEY
from trainshed.client.objects import ObjectClient, ObjectEntry
from trainshed.client.parallel import run_in_parallel
from trainshed.model.errors import InvalidInput, NotFound

__all__ = ["FolderReport", "Meter", "copy_folder", "download_folder", "upload_folder"]


class Meter:
    """Hears how a transfer goes. This one does not listen; override what you need. Called from many threads."""

    # Whether it is worth counting everything before the transfer begins.
    wants_total = False

    def plan(self, files: int, size: int) -> None:
        """So many files and bytes there are in all."""

    def move(self, size: int) -> None:
        """So many bytes have just moved (less than 0: they must be moved again)."""

    def finish(self, path: str, size: int, *, is_unchanged: bool = False) -> None:
        """A file is done; an unchanged one was not moved."""


@dataclass
class FolderReport:
    """What a transfer of a folder did."""

    files: int = 0
    bytes: int = 0
    unchanged: int = 0
    folders: int = 0
    deleted: int = 0
    # Path and reason of what was left out.
    skipped: list[tuple[str, str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, path: str, size: int, meter: Meter, *, is_unchanged: bool = False) -> None:
        """Count a file."""
        with self._lock:
            if is_unchanged:
                self.unchanged += 1
            else:
                self.files += 1
                self.bytes += size
        meter.finish(path, size, is_unchanged=is_unchanged)

    def add_folder(self) -> None:
        """Count a folder's marker."""
        with self._lock:
            self.folders += 1

    def skip(self, path: str, reason: str) -> None:
        """Write down what was left out."""
        with self._lock:
            self.skipped.append((path, reason))


@dataclass(frozen=True)
class _LocalFile:
    """A regular file below a folder, or an empty folder (its path ends in `/`)."""

    path: str
    size: int = 0
    modified_at: float = 0.0


def upload_folder(
    client: ObjectClient,
    folder: Path,
    bucket: str,
    prefix: str,
    *,
    meter: Meter | None = None,
    only_changed: bool = False,
    delete: bool = False,
) -> FolderReport:
    """Bring what lies in a local folder below a prefix; links are not followed but reported."""
    meter = meter or Meter()
    report = FolderReport()
    if not folder.is_dir():
        raise InvalidInput(f"There is no folder {folder}.", hint="Check the path.")
    if meter.wants_total:
        files = [file.size for file in _walk_local(folder, FolderReport()) if not file.path.endswith("/")]
        meter.plan(len(files), sum(files))
    there = {e.key: e for e in client.walk(bucket, prefix)} if only_changed or delete else {}
    seen: set[str] = set()

    def send(file: _LocalFile) -> None:
        key = prefix + file.path
        if not _is_key(key):
            return report.skip(
                file.path.encode(errors="replace").decode(), "the name cannot be an object key"
            )
        if file.path.endswith("/"):
            if key not in there:
                client.put_folder(bucket, key)
                report.add_folder()
            return None
        try:
            if only_changed and _is_same(folder / file.path, file, there.get(key)):
                return report.add(file.path, file.size, meter, is_unchanged=True)
            entry = client.put_file(folder / file.path, bucket, key, on_bytes=meter.move)
        except OSError as error:
            return report.skip(file.path, error.strerror or str(error))
        return report.add(file.path, entry.size, meter)

    def local() -> Iterator[_LocalFile]:
        for file in _walk_local(folder, report):
            if delete:
                seen.add(prefix + file.path)
            yield file

    run_in_parallel(local(), send)
    if delete:
        # A folder's marker stays as long as something lies in the folder here.
        folders = {prefix, *(prefix + above for path in seen for above in _folders_above(path, prefix))}
        extra = [key for key in there if key not in seen and key not in folders]
        run_in_parallel(extra, lambda key: _count_deleted(report, client.delete(bucket, key)))
    return report


def download_folder(
    client: ObjectClient,
    bucket: str,
    prefix: str,
    folder: Path,
    *,
    meter: Meter | None = None,
    only_changed: bool = False,
    delete: bool = False,
) -> FolderReport:
    """Bring all objects below a prefix into a local folder; keys that cannot be file names are reported."""
    meter = meter or Meter()
    report = FolderReport()
    if meter.wants_total:
        sizes = [entry.size for entry in client.walk(bucket, prefix) if not entry.key.endswith("/")]
        meter.plan(len(sizes), sum(sizes))
    seen: set[str] = set()
    files: list[str] = []

    def remote() -> Iterator[tuple[ObjectEntry, str]]:
        for entry in client.walk(bucket, prefix):
            path = entry.key[len(prefix) :]
            # Keys come in order, so all between `a` and `a/b` start with `a`: a file cannot be a folder too.
            while files and not entry.key.startswith(files[-1]):
                files.pop()
            if any(entry.key.startswith(file + "/") for file in files):
                report.skip(entry.key, "a part of the key is an object and cannot be a folder too")
                continue
            if not _is_local_path(path):
                report.skip(entry.key, "the key cannot be a file name here")
                continue
            if not path.endswith("/") and path:
                files.append(entry.key)
            seen.add(path)
            yield entry, path

    def fetch(item: tuple[ObjectEntry, str]) -> None:
        entry, path = item
        target = folder / path
        if not path or path.endswith("/"):
            target.mkdir(parents=True, exist_ok=True)
            return report.add_folder()
        try:
            facts = target.lstat()
            local = _LocalFile(path, facts.st_size, facts.st_mtime)
            if only_changed and stat.S_ISREG(facts.st_mode) and _is_same(target, local, entry):
                return report.add(path, entry.size, meter, is_unchanged=True)
        except (FileNotFoundError, NotADirectoryError):
            pass
        try:
            got = client.get_file(bucket, entry.key, target, on_bytes=meter.move)
        except NotFound:
            return report.skip(entry.key, "it vanished during the transfer")
        return report.add(path, got.size, meter)

    run_in_parallel(remote(), fetch)
    if not seen and not report.skipped:
        if prefix:
            raise NotFound(
                f"There is no folder 'obs://{bucket}/{prefix}'.",
                hint=f"See what is there: trainshed obs ls obs://{bucket}/",
                code="no_such_key",
            )
        folder.mkdir(parents=True, exist_ok=True)
    if delete:
        for file in list(_walk_local(folder, FolderReport())):
            if file.path not in seen and not file.path.endswith("/"):
                (folder / file.path).unlink()
                _count_deleted(report, True)
    return report


def copy_folder(
    client: ObjectClient, bucket: str, prefix: str, to_bucket: str, to_prefix: str, *, delete: bool = False
) -> FolderReport:
    """Make what lies below one prefix lie below another too; only what differs is copied, and no bytes travel."""
    report = FolderReport()
    there = {entry.key: entry for entry in client.walk(to_bucket, to_prefix)}
    for entry in client.walk(bucket, prefix):
        key = to_prefix + entry.key[len(prefix) :]
        old = there.pop(key, None)
        if old is not None and (old.etag, old.size, old.metadata) == (entry.etag, entry.size, entry.metadata):
            report.unchanged += 1
            continue
        client.copy(bucket, entry.key, to_bucket, key)
        report.files += 1
        report.bytes += entry.size
    if delete:
        for key in there:
            _count_deleted(report, client.delete(to_bucket, key))
    return report


def _count_deleted(report: FolderReport, existed: bool) -> None:
    report.deleted += int(existed)


def _walk_local(folder: Path, report: FolderReport) -> Iterator[_LocalFile]:
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        try:
            with os.scandir(folder / prefix) as entries:
                here = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            report.skip(prefix, error.strerror or str(error))
            continue
        if not here and prefix:
            yield _LocalFile(prefix)
        below = []
        for entry in here:
            path = prefix + entry.name
            if entry.is_symlink():
                report.skip(path, "it is a symbolic link")
            elif is_unfinished(entry.name):
                report.skip(path, "it is a download that was not finished")
            elif entry.is_dir(follow_symlinks=False):
                below.append(path + "/")
            elif entry.is_file(follow_symlinks=False):
                try:
                    facts = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield _LocalFile(path, facts.st_size, facts.st_mtime)
            else:
                report.skip(path, "it is not a regular file")
        waiting.extend(reversed(below))


def _is_same(path: Path, local: _LocalFile, there: ObjectEntry | None) -> bool:
    """Same size, and the same time as when it was uploaded or the same bytes."""
    if there is None or there.size != local.size:
        return False
    if there.metadata.get("mtime") == repr(local.modified_at):
        return True
    part_size = there.metadata.get(PART_SIZE_KEY, "") if "-" in there.etag else ""
    digest = ObjectDigest(equal_parts(local.size, int(part_size)) if part_size.isdecimal() else ())
    with path.open("rb") as file:
        digest.read(file, local.size)
    return digest.hexdigest() == there.etag


def _is_key(key: str) -> bool:
    try:
        return 1 <= len(key.encode("utf-8")) <= 1024
    except UnicodeEncodeError:
        return False


def _is_local_path(path: str) -> bool:
    if not path:
        return True
    bad = {"", ".", ".."}
    parts = path.removesuffix("/").split("/")
    if os.name == "nt" and any(letter in path for letter in '\\:*?"<>|'):
        return False
    return not any(part in bad or "\0" in part or len(part.encode()) > 255 for part in parts)


def _folders_above(key: str, prefix: str) -> Iterator[str]:
    path = key[len(prefix) :]
    at = path.find("/")
    while at >= 0:
        yield path[: at + 1]
        at = path.find("/", at + 1)
