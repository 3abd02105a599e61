"""Writes a running job's logs to its `log_url`, again and again, so that they can be followed there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from trainshed.model.errors import TrainshedError
from trainshed.model.home import RunFolder
from trainshed.model.launch_plan import NodeLaunch
from trainshed.runner.homecoming import exported_objects, log_streams
from trainshed.runner.log_archive import LogArchive
from trainshed.store.object_store import ObjectStore
from trainshed.store.tenancy import require_own_bucket

__all__ = ["LiveExport"]

_FIRST_AFTER = 5.0
_EVERY = 30.0
# An object is written whole each time: a log that takes long to write is written less often.
_LEAST_REST = 20.0


class LiveExport:
    """A thread that exports what has changed; it does nothing for a job without a `log_url`.

    The last export, with the whole log, is made after it has stopped.
    """

    def __init__(
        self,
        launch: NodeLaunch,
        store: ObjectStore,
        archive: LogArchive,
        folder: RunFolder,
        say: Callable[[str], None],
        *,
        every: float = _EVERY,
        first_after: float = _FIRST_AFTER,
    ) -> None:
        self._launch = launch
        self._store = store
        self._archive = archive
        self._folder = folder
        self._say = say
        self._every = every
        self._first_after = first_after
        self._sizes: dict[str, int] = {}
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless the job has no `log_url`."""
        if self._launch.log_bucket:
            self._thread = threading.Thread(target=self._run, name="live-export", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End, after an export that is under way."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        wait = self._first_after
        while not self._stopped.wait(wait):
            began = time.monotonic()
            try:
                self._export()
            except (TrainshedError, OSError) as fault:
                # The next turn tries again, and the end of the job does so in earnest.
                self._say(f"the log could not be written to log_url yet: {fault}\n")
            wait = max(self._every, _LEAST_REST * (time.monotonic() - began))

    def _export(self) -> None:
        bucket = self._launch.log_bucket
        require_own_bucket(self._store, bucket, self._launch.workspace_id)
        spools = log_streams(self._launch, self._folder)
        for item in exported_objects(self._launch, self._folder):
            spool = spools[item.stream]
            size = spool.stat().st_size if spool.exists() else 0
            if not size or self._sizes.get(item.name) == size or self._stopped.is_set():
                continue
            self._archive.export_live(item.stream, spool, bucket, self._launch.log_prefix + item.name)
            self._sizes[item.name] = size
