"""The checkpoint folder: brought home at the end of an attempt, and there again at the beginning of the next.

Where the job names no place of its own, every attempt's folder is kept as a whole: the files first, then a mark
for each node. Only an attempt that all nodes have marked is used, so that the parts of a checkpoint that
several nodes wrote always belong together. Files of all nodes are seen by every node; a node keeps what it has
written itself, and the first one also what nobody has touched.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from trainshed.model.errors import NotFound, TrainshedError
from trainshed.model.late_pattern import late_pattern
from trainshed.model.launch_plan import NodeLaunch
from trainshed.model.size import count_files, format_size
from trainshed.runner.checkpoint_look import (
    Stamp,
    checkpoint_folder,
    read_staged,
    remember_staged,
    stamp_of,
)
from trainshed.runner.checkpoint_versions import fetch_versions, find_versions, live_prefix
from trainshed.runner.homecoming import try_again
from trainshed.runner.log_archive import ARCHIVE_BUCKET
from trainshed.store.object_store import ObjectStore
from trainshed.store.tenancy import require_own_bucket
from trainshed.store.transfer import TransferSummary, download_tree, upload_tree

__all__ = ["bring_checkpoints", "checkpoint_folder", "latest_attempt", "stage_checkpoints"]

_ATTEMPT = late_pattern(r"attempt-(\d+)/node-(\d+)\.complete")


def latest_attempt(store: ObjectStore, job_id: str, nodes: int, before: int) -> int:
    """The last attempt before this one whose checkpoints all nodes have brought home; 0 if there is none."""
    complete: dict[int, set[int]] = {}
    prefix = f"{job_id}/checkpoints/"
    for info in store.list(ARCHIVE_BUCKET, prefix, delimiter="/").folders:
        for marker in store.list(ARCHIVE_BUCKET, info, delimiter="/").objects:
            found = _ATTEMPT.fullmatch(marker.key.removeprefix(prefix))
            if found:
                complete.setdefault(int(found[1]), set()).add(int(found[2]))
    whole = [attempt for attempt, seen in complete.items() if attempt < before and len(seen) >= nodes]
    return max(whole, default=0)


def stage_checkpoints(launch: NodeLaunch, store: ObjectStore, root: Path, say: Callable[[str], None]) -> None:
    """Make the folder ready, with what earlier attempts left in it."""
    plan = launch.checkpoints
    if plan is None:
        return
    folder = checkpoint_folder(root)
    folder.mkdir(parents=True, exist_ok=True)
    if plan.bucket:
        require_own_bucket(store, plan.bucket, launch.workspace_id)
        sources = [(plan.bucket, plan.prefix)]
        where = f"obs://{plan.bucket}/{plan.prefix}"
    else:
        attempt = latest_attempt(store, launch.job_id, launch.node_count, launch.attempt)
        if _stage_live(launch, store, root, attempt, say):
            return
        if not attempt:
            return
        base = f"{launch.job_id}/checkpoints/attempt-{attempt}/"
        # The first node comes last: what it wrote counts where two nodes wrote one name.
        sources = [(ARCHIVE_BUCKET, f"{base}staged/")]
        sources += [(ARCHIVE_BUCKET, f"{base}node-{node}/") for node in reversed(range(launch.node_count))]
        where = f"attempt {attempt}"
    files = size = 0
    for bucket, prefix in sources:
        try:
            summary = download_tree(store, bucket, prefix, folder)
        except NotFound:
            continue
        files, size = files + summary.files, size + summary.bytes
    remember_staged(root)
    if files:
        say(f"checkpoints: {count_files(files)}, {format_size(size)} from {where}, in {plan.path}")


def _stage_live(
    launch: NodeLaunch, store: ObjectStore, root: Path, after: int, say: Callable[[str], None]
) -> bool:
    """Make the folder ready with what came home while a later attempt trained, whose end brought nothing home."""
    for attempt in sorted(_attempts(launch, store), reverse=True):
        if not after < attempt < launch.attempt:
            continue
        versions = find_versions(store, launch.job_id, attempt, launch.node_count)
        if not versions:
            continue
        files, size = fetch_versions(store, versions, checkpoint_folder(root))
        remember_staged(root)
        if launch.node_index == 0:
            _forget(launch, store, before=attempt)
        say(
            f"checkpoints: {count_files(files)}, {format_size(size)} that came home while attempt {attempt} trained"
        )
        return True
    return False


def bring_checkpoints(
    launch: NodeLaunch, store: ObjectStore, root: Path, limit: int, say: Callable[[str], None]
) -> TrainshedError | None:
    """Bring the folder home; what could not be brought is returned, not raised."""
    plan = launch.checkpoints
    folder = checkpoint_folder(root)
    if plan is None or not folder.is_dir() or folder.is_symlink():
        return None
    began = time.monotonic()
    staged = read_staged(root)

    def is_own(path: str) -> bool:
        return path not in staged or not _has_stamp(folder / path, staged[path])

    def bring(bucket: str, prefix: str, is_wanted: Callable[[str], bool]) -> TransferSummary:
        upload = partial(upload_tree, store, folder, bucket, prefix, only_changed=True, is_wanted=is_wanted)
        return try_again(upload, say)

    try:
        if plan.bucket:
            require_own_bucket(store, plan.bucket, launch.workspace_id)
            # What came from there is there; another node may have written it anew.
            summary = bring(plan.bucket, plan.prefix, is_own)
        else:
            size = _size(folder)
            if limit and size > limit:
                say(
                    f"checkpoints: {size / 1e9:.1f} GB are more than this platform keeps ({limit / 1e9:.1f} GB); "
                    "name a place of your own: `checkpoints: obs://…/`"
                )
                return None
            base = f"{launch.job_id}/checkpoints/attempt-{launch.attempt}/"
            summary = bring(ARCHIVE_BUCKET, f"{base}node-{launch.node_index}/", is_own)
            if launch.node_index == 0 and staged:
                bring(ARCHIVE_BUCKET, f"{base}staged/", lambda path: not is_own(path))
            try_again(
                partial(store.put, ARCHIVE_BUCKET, f"{base}node-{launch.node_index}.complete", b""), say
            )
            _forget_older(launch, store)
    except TrainshedError as fault:
        return fault
    if summary.files or summary.unchanged:
        seconds = time.monotonic() - began
        say(
            f"checkpoints: {count_files(summary.files)}, {format_size(summary.bytes)} kept in {seconds:.1f} s"
        )
    return None


def _has_stamp(path: Path, stamp: Stamp) -> bool:
    try:
        return stamp_of(path.lstat()) == stamp
    except OSError:
        return False


def _forget_older(launch: NodeLaunch, store: ObjectStore) -> None:
    """Remove what this attempt has made superfluous, once all its nodes are home."""
    whole = latest_attempt(store, launch.job_id, launch.node_count, launch.attempt + 1)
    if whole == launch.attempt:
        _forget(launch, store, before=whole)
        store.delete_prefix(ARCHIVE_BUCKET, live_prefix(launch.job_id, whole))


def _forget(launch: NodeLaunch, store: ObjectStore, before: int) -> None:
    for attempt in _attempts(launch, store):
        if attempt < before:
            store.delete_prefix(ARCHIVE_BUCKET, f"{launch.job_id}/checkpoints/attempt-{attempt}/")


def _attempts(launch: NodeLaunch, store: ObjectStore) -> list[int]:
    """The attempts of which there is something in the archive."""
    folders = store.list(ARCHIVE_BUCKET, f"{launch.job_id}/checkpoints/", delimiter="/").folders
    numbers = [prefix.rstrip("/").rpartition("-")[2] for prefix in folders]
    return [int(number) for number in numbers if number.isdigit()]


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
