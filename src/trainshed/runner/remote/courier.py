"""Carries what the runner writes to the platform as it grows, and brings back what the platform wants.

The runner itself never waits for the platform: it writes into its folder, as everywhere. While the platform is away
the files just grow; when it is back, it is told how far it had come. What was archived in the store meanwhile is a hole
in the file and is left out. The final report goes last: whoever has it has everything.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainshed.durable import write_durably
from trainshed.model.errors import Conflict, NotAuthenticated, TrainshedError
from trainshed.model.home import RunFolder
from trainshed.runner.doorbell import Doorbell
from trainshed.runner.remote.node_folder import bell_file, go_file, ready_file
from trainshed.runner.remote.platform_link import PlatformLink
from trainshed.runner.remote.ssh_calls import SshCalls

__all__ = ["DELIVERED", "GIVEN_UP", "UNWANTED", "Courier"]

# How a courier ends: everything is delivered, the platform does not want it any more, or it was away for too long.
DELIVERED, UNWANTED, GIVEN_UP = 0, 3, 4
_LEAST_PAUSE, _LONGEST_PAUSE = 0.2, 1.5
_LONGEST_WAIT = 15.0
# What nobody waits for (which stage it is; that all is well) is told so often.
_NEWS_SECONDS = 1.0
_PIECE_BYTES, _REQUEST_BYTES = 1 << 20, 4 << 20
_MOST_PIECES = 200
_PATIENCE_SECONDS = 24 * 3600.0


class Courier:
    """Serves one node until its final report is delivered."""

    def __init__(
        self,
        folder: RunFolder,
        link: PlatformLink,
        *,
        patience: float = _PATIENCE_SECONDS,
        is_first: bool = False,
    ) -> None:
        self._folder = folder
        self._bell = _hang_bell(folder)
        self._is_first = is_first
        self._patience = patience
        self._link = link
        # What nobody has carried before need not be asked for.
        self._sent: dict[str, int] | None = {} if is_first else None
        self._told: tuple[int, int] | None = None
        self._is_ready_told = False
        self._heard_at = time.monotonic()
        self._ssh = SshCalls(folder, lambda name: link.call_back(name))

    def run(self) -> int:
        """Carry until all is delivered; `DELIVERED`, `UNWANTED` or `GIVEN_UP`."""
        pause, wait = _LEAST_PAUSE, _LEAST_PAUSE
        last_heard = time.monotonic()
        if self._is_first:
            # The runner begins at this very moment: there is nothing to carry yet.
            self._rest(pause)
        while True:
            try:
                is_over, was_busy = self._carry()
            except (NotAuthenticated, Conflict) as refused:
                self._stop_runner(refused.message)
                return UNWANTED
            except TrainshedError:
                # As long as the job's processes run they are not disturbed; only their results do not wait for ever, and
                # the runner has then waited for the store just as long.
                if self._is_training():
                    last_heard = time.monotonic()
                elif self._has_ended() and time.monotonic() - last_heard > self._patience:
                    return GIVEN_UP
                time.sleep(wait)
                wait = min(_LONGEST_WAIT, wait * 2)
                continue
            last_heard, wait = time.monotonic(), _LEAST_PAUSE
            if is_over:
                return DELIVERED
            pause = _LEAST_PAUSE if was_busy else min(_LONGEST_PAUSE, pause * 1.5)
            self._rest(pause)

    def _rest(self, seconds: float) -> None:
        """Wait for more; what is urgent (the node's end) is rung for."""
        if self._bell is not None:
            self._bell.wait(seconds)
        else:
            time.sleep(seconds)

    def _carry(self) -> tuple[bool, bool]:
        """One exchange: whether all is delivered, and whether there was something new."""
        if self._sent is None:
            # After a restart of the courier the platform knows how far the last one had come.
            self._sent = dict(self._link.report()["sizes"])
        # The report is read before the files: what it tells of them is there when they are read.
        stamp, report = self._read_report()
        pieces, has_more = self._next_pieces(self._sent)
        is_final = report is not None and report.get("ending") is not None
        is_new = report is not None and stamp != self._told and not (is_final and has_more)
        ready = not self._is_ready_told and ready_file(self._folder).exists()
        is_waiting = self._is_ready_told and not go_file(self._folder).exists()
        is_urgent = bool(pieces) or is_final or ready or is_waiting
        if not is_urgent and time.monotonic() - self._heard_at < _NEWS_SECONDS:
            return False, is_new
        answer = self._link.report(pieces, report if is_new else None, ready=ready)
        for path, offset, data in pieces:
            self._sent[path] = offset + len(data)
        if is_new:
            self._told = stamp
        self._heard_at = time.monotonic()
        self._is_ready_told = self._is_ready_told or ready
        self._obey(answer)
        is_waiting = self._is_ready_told and not go_file(self._folder).exists()
        return is_final and is_new and not has_more, bool(pieces) or is_new or is_waiting

    def _obey(self, answer: dict[str, Any]) -> None:
        if answer["go"] and not go_file(self._folder).exists():
            go_file(self._folder).touch()
        if answer["stop"] is not None and not self._folder.stop.exists():
            write_durably(self._folder.stop, answer["stop"])
        self._ssh.answer(answer.get("ssh", ()))

    def _stop_runner(self, reason: str) -> None:
        if not self._folder.stop.exists():
            write_durably(self._folder.stop, {"reason": reason, "outcome": "stopped"})

    def _is_training(self) -> bool:
        """Whether processes of the job run, or are still to come."""
        report = self._read_report()[1]
        if report is None or report.get("ending") is not None:
            return report is None
        try:
            processes = len(json.loads(self._folder.launch.read_bytes())["processes"])
        except (OSError, ValueError, KeyError):
            return True
        return len(report.get("ranks") or ()) < processes

    def _has_ended(self) -> bool:
        report = self._read_report()[1]
        return report is not None and report.get("ending") is not None

    def _read_report(self) -> tuple[tuple[int, int] | None, dict[str, Any] | None]:
        try:
            with self._folder.status.open("rb") as file:
                facts = os.fstat(file.fileno())
                return (facts.st_ino, facts.st_mtime_ns), json.loads(file.read())
        except FileNotFoundError:
            return None, None

    def _next_pieces(self, sent: dict[str, int]) -> tuple[list[tuple[str, int, bytes]], bool]:
        """What is new in the files, as much as one request carries; and whether there is more."""
        pieces: list[tuple[str, int, bytes]] = []
        room = _REQUEST_BYTES
        for name in self._files():
            if room <= 0 or len(pieces) >= _MOST_PIECES:
                return pieces, True
            offset, data, is_rest = _read_new(
                self._folder.path / name, sent.get(name, 0), min(room, _PIECE_BYTES)
            )
            if data:
                pieces.append((name, offset, data))
                room -= len(data)
            if not is_rest:
                return pieces, True
        return pieces, False

    def _files(self) -> Iterator[str]:
        root = self._folder.path
        for folder in (self._folder.platform_log.parent, self._folder.file_logs):
            try:
                names = sorted(os.listdir(folder))
            except FileNotFoundError:
                continue
            for name in names:
                path = folder / name
                if path.is_file() and not path.is_symlink():
                    yield str(path.relative_to(root))
        own = self._folder
        for path in (own.metrics, own.system_metrics, own.runner_log, own.ssh_off):
            if path.is_file():
                yield path.name


def _hang_bell(folder: RunFolder) -> Doorbell | None:
    try:
        return Doorbell(bell_file(folder))
    except OSError:
        # A file system without FIFOs, or one that is full: it is looked now and then all the same.
        return None


def _read_new(path: Path, start: int, most: int) -> tuple[int, bytes, bool]:
    """Bytes of a file from an offset on, where they begin, and whether they are all that there is."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return start, b"", True
    try:
        size = os.fstat(descriptor).st_size
        while start < size:
            data = os.pread(descriptor, min(most, size - start), start)
            try:
                # Asked after reading: what was archived at this very moment is a hole, and no bytes of the job's.
                begins = os.lseek(descriptor, start, os.SEEK_DATA)
            except OSError:
                # A hole up to the end of the file.
                return size, b"", True
            if begins <= start:
                return start, data, start + len(data) >= size
            start = begins
        return start, b"", True
    finally:
        os.close(descriptor)
