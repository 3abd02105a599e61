"""A progress bar for transfers: files, bytes, speed and the time left; silent when nobody watches."""

from __future__ import annotations

import sys
import threading
from types import TracebackType

from trainshed.client.object_folders import Meter

__all__ = ["TransferBar"]


class TransferBar(Meter):
    """Draws what it hears on the error stream, so that data on standard output stays clean."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._lock = threading.Lock()
        self._files = self._total_files = 0
        self.wants_total = sys.stderr.isatty()
        if self.wants_total:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )

            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[files]}"),
                DownloadColumn(),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._progress.add_task(label, total=None, files="")

    def __enter__(self) -> TransferBar:
        if self.wants_total:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.wants_total:
            self._progress.stop()

    def plan(self, files: int, size: int) -> None:
        """So many files and bytes there are in all."""
        if self.wants_total:
            self._total_files = files
            self._progress.update(self._task, total=size, files=f"0/{files} files")

    def move(self, size: int) -> None:
        """So many bytes have just moved."""
        if self.wants_total:
            self._progress.advance(self._task, size)

    def finish(self, path: str, size: int, *, is_unchanged: bool = False) -> None:
        """A file is done."""
        if not self.wants_total:
            return
        with self._lock:
            self._files += 1
            count = f"{self._files}/{self._total_files} files"
        self._progress.update(self._task, files=count)
        if is_unchanged:
            self._progress.advance(self._task, size)
