"""The runner's report: a status file that is always whole, and a log for the job's owner."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from dataclasses import replace
from pathlib import Path

from trainshed.durable import write_durably, write_whole
from trainshed.model.attempt import Ending, NodeReport, RankExit, Stage, StageEntry
from trainshed.model.home import RunFolder
from trainshed.model.launch_plan import NodeLaunch, to_json
from trainshed.runner.doorbell import ring_doorbell

__all__ = ["PlatformLog", "Reporter"]

# Room on the disk that is kept so that the final report can be written when everything else is full.
_RESERVE_BYTES = 64 << 10


class PlatformLog:
    """What the platform says to the job's owner, line by line."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def say(self, message: str) -> None:
        """Add a line of our own, with the time."""
        # On a full disk the words are lost, the job's end is not.
        with contextlib.suppress(OSError):
            self.write(f"{time.strftime('%H:%M:%S')} {message}\n".encode("utf-8", "replace"))

    def write(self, data: bytes) -> None:
        """Add bytes as they are (the output of an install)."""
        while data:
            data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


class Reporter:
    """Keeps the report of this node and writes it whenever it changes."""

    def __init__(
        self, folder: RunFolder, launch: NodeLaunch, doorbell: str, *, is_durable: bool = True
    ) -> None:
        self._folder = folder
        self._path = folder.status
        self._replace = write_durably if is_durable else write_whole
        self._doorbell = doorbell
        self._reserve = folder.path / ".reserve"
        if not self._reserve.exists():
            self._reserve.write_bytes(bytes(_RESERVE_BYTES))
        self.report = NodeReport(
            job_id=launch.job_id,
            attempt=launch.attempt,
            node_index=launch.node_index,
            pid=os.getpid(),
            stage="starting",
            started_at=time.time(),
        )

    def begin(self) -> None:
        """The runner begins; told with the first stage, which follows at once."""
        entry = StageEntry(time.time(), "starting", "", "info")
        self.report = replace(self.report, timeline=(*self.report.timeline, entry))

    def resume(self, report: NodeReport) -> None:
        """Go on from a report that a dead runner left."""
        self.report = replace(report, pid=os.getpid())

    def enter(self, stage: Stage, message: str = "", *, level: str = "info", launched: bool = False) -> None:
        """A stage begins; what the control loop reads afterwards is on disk."""
        entry = StageEntry(time.time(), stage, message, level)
        self._write(
            replace(
                self.report,
                stage=stage,
                timeline=(*self.report.timeline, entry),
                launched=self.report.launched or launched,
            ),
            must=launched,
        )

    def describe(self, sandbox: str, limits: tuple[str, ...]) -> None:
        """Record what protects the host; written with the next stage."""
        self.report = replace(self.report, sandbox=sandbox, limits=limits)

    def hold(self, held_since: float) -> None:
        """Only `sleep` is left since then; 0 when something works again."""
        self._write(replace(self.report, held_since=held_since))

    def fall_silent(self, silent_since: float) -> None:
        """No rank has written or worked since then; 0 when one does again."""
        self._write(replace(self.report, silent_since=silent_since))

    def fall_idle(self, idle_since: float) -> None:
        """Neither a device nor the processor was used since then; 0 when one is again."""
        self._write(replace(self.report, idle_since=idle_since))

    def rank_ended(self, rank_exit: RankExit) -> None:
        """A rank's process is over."""
        self._write(replace(self.report, ranks=(*self.report.ranks, rank_exit)))

    def end(self, ending: Ending, log_sizes: dict[str, int], left_behind: tuple[str, ...]) -> None:
        """The node's run is over: the last thing that a runner writes."""
        now = time.time()
        place = ""
        if left_behind:
            from trainshed.runner.resting_place import name_place

            place = f" ({name_place(self._folder)})"
        entry = StageEntry(now, "ended", ending.message, "error" if ending.outcome == "failed" else "info")
        self._write(
            replace(
                self.report,
                stage="ended",
                ending=ending,
                ended_at=now,
                timeline=(*self.report.timeline, entry),
                log_sizes=log_sizes,
                left_behind=tuple(words + place for words in left_behind),
            ),
            must=True,
        )
        # Only an end is urgent, because others wait for the devices. A loop that were rung for every stage
        # would spend more on a short job than the job itself.
        if self._doorbell:
            ring_doorbell(self._doorbell)

    def _write(self, report: NodeReport, *, must: bool = False) -> None:
        self.report = report
        try:
            self._replace(self._path, to_json(report))
        except OSError as fault:
            if fault.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # The disk is full. A stage that is not written is missed by nobody; the end must be there.
            if must:
                self._reserve.unlink(missing_ok=True)
                self._replace(self._path, to_json(report))
