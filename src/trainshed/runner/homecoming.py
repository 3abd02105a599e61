"""Brings home what a node's run has made: outputs, logs, metrics. Used at the end, and after a lost runner."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from trainshed.model.errors import TrainshedError
from trainshed.model.home import RunFolder
from trainshed.model.launch_plan import LogObject, NodeLaunch
from trainshed.model.size import count_files, format_size
from trainshed.runner.log_archive import ARCHIVE_BUCKET, LogArchive, archive_prefix
from trainshed.runner.reporter import PlatformLog
from trainshed.runner.staging import StagedFolders
from trainshed.store.outage import GIVEN_UP

if TYPE_CHECKING:
    from trainshed.store.object_store import ObjectStore

__all__ = [
    "export_logs",
    "exported_objects",
    "log_streams",
    "try_again",
    "upload_logs",
    "upload_metrics",
    "upload_outputs",
]

_SAY_EVERY = 5.0
# Waits between tries: a store that is busy or restarting is back long before the last one.
_TRIES = (0.5, 2.0, 5.0, 15.0, 30.0)
_LONGEST_WAIT_FOR_ROOM = 2.0


def upload_outputs(
    launch: NodeLaunch, store: ObjectStore, folders: StagedFolders, log: PlatformLog
) -> TrainshedError | None:
    """Upload every output folder that can be; the first fault is returned, not raised."""
    from trainshed.store.tenancy import require_own_bucket
    from trainshed.store.transfer import upload_tree

    first: TrainshedError | None = None
    for output in launch.outputs:
        source = folders.output(output.name)
        if not source.is_dir() or source.is_symlink():
            log.say(f"output {output.name}: the folder is gone, nothing to upload")
            continue
        tell = _Progress(output.name, log)
        try:
            require_own_bucket(store, output.bucket, launch.workspace_id)
            # A second try, here or after a lost runner, only sends what the first one did not.
            upload = partial(
                upload_tree, store, source, output.bucket, output.prefix, on_progress=tell, only_changed=True
            )
            summary = try_again(upload, log.say)
        except TrainshedError as fault:
            log.say(f"output {output.name}: upload failed: {fault}")
            first = first or fault
            if fault.status < 500:
                continue
            # The store itself does not work, and was waited for: the next output would have to wait as long.
            break
        log.say(
            f"output {output.name}: {count_files(summary.files)}, {format_size(summary.bytes)} "
            f"to obs://{output.bucket}/{output.prefix}"
            + (f", {summary.unchanged} files were there already" if summary.unchanged else "")
        )
        for skipped in summary.skipped[:20]:
            log.say(f"output {output.name}: left out {skipped}")
    return first


def upload_logs(
    launch: NodeLaunch, archive: LogArchive, folder: RunFolder, say: Callable[[str], None]
) -> TrainshedError | None:
    """Archive the rest of every log."""
    try:
        for stream, spool in log_streams(launch, folder).items():
            try_again(partial(archive.ship, stream, spool, final=True), say)
    except TrainshedError as fault:
        return fault
    return None


def export_logs(
    launch: NodeLaunch,
    store: ObjectStore,
    archive: LogArchive,
    folder: RunFolder,
    say: Callable[[str], None],
) -> TrainshedError | None:
    """Write the archived logs to the destination that the job names, if it names one."""
    if not launch.log_bucket:
        return None
    from trainshed.store.tenancy import require_own_bucket

    try:
        require_own_bucket(store, launch.log_bucket, launch.workspace_id)
        for item in exported_objects(launch, folder):
            key = launch.log_prefix + item.name
            try_again(partial(archive.export, item.stream, launch.log_bucket, key), say)
    except TrainshedError as fault:
        return fault
    return None


def exported_objects(launch: NodeLaunch, folder: RunFolder) -> tuple[LogObject, ...]:
    """The logs of a node under the names that they have below `log_url`."""
    if launch.log_objects:
        return launch.log_objects
    place = f"{launch.job_name}/attempt-{launch.attempt}/node-{launch.node_index}"
    return tuple(LogObject(stream, f"{place}/{stream}.log") for stream in log_streams(launch, folder))


def upload_metrics(launch: NodeLaunch, store: ObjectStore, folder: RunFolder) -> TrainshedError | None:
    """Archive the metric points and the samples of the node's use."""
    prefix = archive_prefix(launch.job_id, launch.attempt, launch.node_index)
    try:
        for path in (folder.metrics, folder.system_metrics):
            if path.exists() and path.stat().st_size:
                with path.open("rb") as data:
                    store.put(ARCHIVE_BUCKET, prefix + path.name, data, content_type="application/x-ndjson")
    except TrainshedError as fault:
        return fault
    return None


def log_streams(launch: NodeLaunch, folder: RunFolder) -> dict[str, Path]:
    """All logs of a node: what the platform said, each rank's output, and what launchers wrote into files."""
    ranks = {f"rank-{process.rank}": folder.rank_log(process.rank) for process in launch.processes}
    try:
        names = sorted(os.listdir(folder.file_logs))
    except FileNotFoundError:
        names = []
    files = {f"files/{name}": folder.file_log(name) for name in names}
    return {**ranks, "platform": folder.platform_log, **files}


class _Progress:
    """Says every few seconds how much of an output is uploaded."""

    def __init__(self, name: str, log: PlatformLog) -> None:
        self._name = name
        self._log = log
        self._next = time.monotonic() + _SAY_EVERY

    def __call__(self, files: int, size: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _SAY_EVERY
            self._log.say(f"output {self._name}: {count_files(files)}, {format_size(size)} so far")


T = TypeVar("T")


def try_again(action: Callable[[], T], say: Callable[[str], None]) -> T:
    """Try an action on the store again after short waits."""
    for wait in _TRIES:
        try:
            return action()
        except TrainshedError as fault:
            if (
                fault.status < 500
                or fault.code == GIVEN_UP
                or (fault.code == "disk_full" and wait > _LONGEST_WAIT_FOR_ROOM)
            ):
                # A full disk does not empty itself while somebody waits for the job's end.
                raise
            say(f"the store did not take it ({fault.message}); trying again in {wait:g} s")
            time.sleep(wait)
    return action()
