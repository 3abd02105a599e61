"""Code snapshots: a folder of code, uploaded once, named by the digest of its content, never changed.

The files of a snapshot lie in the bucket `.code` below `<digest>/<random>/`. A marker object, written last,
says which of these folders is whole: a half upload is never used. Markers are per workspace, so that nobody
can use code of others by knowing its digest.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from trainshed.db import jobs as db_jobs
from trainshed.db.engine import read
from trainshed.model.code_digest import digest_code
from trainshed.model.errors import InvalidInput, NotFound, TooLarge
from trainshed.services.access import require
from trainshed.services.identity import Caller
from trainshed.services.platform import Platform
from trainshed.services.tar_stream import Readable, TarFile, read_tar

__all__ = [
    "CODE_BUCKET",
    "Snapshot",
    "find_snapshot",
    "has_snapshot",
    "release_code",
    "remove_abandoned_code",
    "upload_snapshot",
]

CODE_BUCKET = ".code"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOST_FILES = 50_000
_ABANDONED_SECONDS = 7 * 86400.0


@dataclass(frozen=True)
class Snapshot:
    """A whole snapshot: where its files lie."""

    digest: str
    prefix: str
    files: int
    size: int


def has_snapshot(platform: Platform, caller: Caller, digest: str) -> bool:
    """Whether the workspace has this code already, so that it need not be uploaded again."""
    require(caller, "job.submit")
    return find_snapshot(platform, caller.workspace_id, digest) is not None


def upload_snapshot(
    platform: Platform, caller: Caller, tar: Readable | Iterable[bytes], digest: str
) -> Snapshot:
    """Store the files of a tar stream (plain or gzip) as a snapshot; its content must have the claimed digest."""
    require(caller, "job.submit")
    _check_digest(digest)
    known = find_snapshot(platform, caller.workspace_id, digest)
    if known is not None:
        return known
    platform.store.ensure_bucket(CODE_BUCKET)
    prefix = f"{digest}/{secrets.token_hex(8)}/"
    try:
        snapshot = _store_files(platform, tar, digest, prefix)
        platform.store.put(
            CODE_BUCKET,
            _marker(caller.workspace_id, digest),
            json.dumps({"prefix": prefix, "files": snapshot.files, "size": snapshot.size}).encode(),
        )
    except BaseException:
        platform.store.delete_prefix(CODE_BUCKET, prefix)
        raise
    return snapshot


def find_snapshot(platform: Platform, workspace_id: str, digest: str) -> Snapshot | None:
    """The workspace's whole snapshot with that digest. Asks for no permission."""
    if not _DIGEST.fullmatch(digest):
        return None
    try:
        with platform.store.open(CODE_BUCKET, _marker(workspace_id, digest)) as file:
            data = json.loads(file.read())
    except NotFound:
        return None
    return Snapshot(digest, data["prefix"], data["files"], data["size"])


def release_code(platform: Platform, workspace_id: str, bucket: str, prefix: str) -> None:
    """Remove a job's code when no other job refers to it. The job itself is marked as deleted before.

    The marker goes first, then the question is asked again: a submit that found the marker in between has
    either stored its job by then (and the files stay) or sees that the marker is gone (and fails).
    """
    if not prefix or _is_used(platform, prefix):
        return
    if bucket == CODE_BUCKET:
        digest = prefix.partition("/")[0]
        known = find_snapshot(platform, workspace_id, digest)
        if known is not None and known.prefix == prefix:
            platform.store.delete(CODE_BUCKET, _marker(workspace_id, digest))
        if _is_used(platform, prefix):
            return
    platform.store.delete_prefix(bucket, prefix)


def remove_abandoned_code(platform: Platform) -> int:
    """Remove snapshots that no job refers to and that are older than a week; the number of them."""
    before = platform.clock() - _ABANDONED_SECONDS
    platform.store.ensure_bucket(CODE_BUCKET)
    whole: set[str] = set()
    removed = 0
    for info in platform.store.walk(CODE_BUCKET, "complete/"):
        _, workspace_id, digest = info.key.split("/")
        known = find_snapshot(platform, workspace_id, digest)
        if known is None:
            continue
        if info.modified_at < before and not _is_used(platform, known.prefix):
            release_code(platform, workspace_id, CODE_BUCKET, known.prefix)
            removed += 1
        else:
            whole.add(known.prefix)
    leftovers: dict[str, float] = {}
    for info in platform.store.walk(CODE_BUCKET):
        prefix = "/".join(info.key.split("/")[:2]) + "/"
        if not prefix.startswith("complete/") and prefix not in whole:
            leftovers[prefix] = max(info.modified_at, leftovers.get(prefix, 0.0))
    for prefix, newest in leftovers.items():
        if newest < before and not _is_used(platform, prefix):
            platform.store.delete_prefix(CODE_BUCKET, prefix)
            removed += 1
    return removed


def _store_files(platform: Platform, tar: Readable | Iterable[bytes], digest: str, prefix: str) -> Snapshot:
    limit = platform.settings.code_limit_mb * 1024 * 1024
    found: dict[str, tuple[str, bool, str]] = {}
    folders: set[str] = set()
    total = 0
    for file in read_tar(tar):
        total += file.size
        if total > limit:
            raise TooLarge(
                f"The code folder is larger than {platform.settings.code_limit_mb} MiB.",
                hint="Upload data to the object store and name it as an input; leave it out of the code folder.",
                code="code_too_large",
                where="code",
            )
        if len(found) >= _MOST_FILES:
            raise TooLarge(f"The code folder has more than {_MOST_FILES} files.", where="code")
        parts = file.path.split("/")
        above = {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        if file.path in found or file.path in folders or above & found.keys():
            raise InvalidInput(
                f"'{file.path[:120]}' is twice in the code upload.", code="bad_code_file", where="code"
            )
        folders |= above
        found[file.path] = (file.path, file.executable, _store_file(platform, file, prefix))
    if digest_code(found.values()) != digest:
        raise InvalidInput(
            "The code that arrived is not the code that was announced.",
            hint="Upload it again; nothing was kept.",
            code="digest_mismatch",
            where="code",
        )
    return Snapshot(digest, prefix, len(found), total)


def _store_file(platform: Platform, file: TarFile, prefix: str) -> str:
    seen = hashlib.sha256()
    metadata = {"mode": "755"} if file.executable else {}
    with platform.store.upload(CODE_BUCKET, prefix + file.path, metadata=metadata) as upload:
        for chunk in file.chunks:
            seen.update(chunk)
            upload.write(chunk)
        upload.commit()
    return seen.hexdigest()


def _is_used(platform: Platform, prefix: str) -> bool:
    with read(platform.engine) as connection:
        return db_jobs.jobs_of_code(connection, prefix) > 0


def _marker(workspace_id: str, digest: str) -> str:
    return f"complete/{workspace_id}/{digest}"


def _check_digest(digest: str) -> None:
    if not _DIGEST.fullmatch(digest):
        raise InvalidInput("A code digest is 64 hexadecimal digits.", where="digest")
