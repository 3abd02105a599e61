"""Moves finished pieces of logs to the store while the job runs, without keeping its watcher waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from trainshed.model.errors import TrainshedError
from trainshed.runner.log_archive import LogArchive

__all__ = ["LogShipping"]


class LogShipping:
    """Ships all streams of a node. To a store that may be away, in a thread: the job is watched meanwhile."""

    def __init__(
        self,
        archive: LogArchive,
        streams: Callable[[], Mapping[str, Path]],
        note: Callable[[str], None],
        *,
        is_far: bool,
    ) -> None:
        self.archive = archive
        self._streams = streams
        self._note = note
        self._is_far = is_far
        self._thread: threading.Thread | None = None

    def ship(self) -> None:
        """Archive what makes a whole piece. Does nothing while the last call is still at it."""
        if not self._is_far:
            self._ship()
        elif self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._ship, name="log-shipping", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Wait for what is under way."""
        if self._thread is not None:
            self._thread.join()

    def _ship(self) -> None:
        try:
            for stream, spool in self._streams().items():
                self.archive.ship(stream, spool)
        except TrainshedError as fault:
            # The spool keeps everything; the next tick or the end tries again.
            self._note(f"a piece of the log could not be archived yet: {fault}\n")
