"""Watches a node's processes from their start to their end: exits, limits, metrics, logs, silence."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from trainshed.model.attempt import Ending, RankExit
from trainshed.model.home import RunFolder
from trainshed.model.launch_plan import NodeLaunch
from trainshed.runner.hang_watch import HangWatch
from trainshed.runner.hold_watch import HoldWatch
from trainshed.runner.idle_watch import Activity, IdleWatch, count_bytes
from trainshed.runner.kept_folders import KeptFoldersWatch
from trainshed.runner.late_modules import load_rest
from trainshed.runner.reporter import PlatformLog, Reporter
from trainshed.runner.sandbox import Sandbox, SandboxEnded
from trainshed.runner.site import Site
from trainshed.runner.system_metrics import SystemSampler
from trainshed.runner.time_warning import TimeWarning

if TYPE_CHECKING:
    from trainshed.runner.gang import Gang
    from trainshed.runner.launcher_logs import LauncherLogs
    from trainshed.runner.live_checkpoints import LiveCheckpoints
    from trainshed.runner.live_export import LiveExport
    from trainshed.runner.log_archive import LogArchive
    from trainshed.runner.log_shipping import LogShipping
    from trainshed.runner.metric_tail import MetricTail
    from trainshed.store.object_store import ObjectStore

__all__ = ["TrainingWatch"]

_TICK = 0.2
_METRICS_EVERY = 1.0
_SYSTEM_EVERY = 5.0
_TAIL_BYTES = 64 << 10


class TrainingWatch:
    """The watch over one node while its processes run."""

    def __init__(
        self,
        launch: NodeLaunch,
        site: Site,
        folder: RunFolder,
        store: ObjectStore,
        archive: LogArchive,
        reporter: Reporter,
        log: PlatformLog,
    ) -> None:
        self._launch = launch
        self._site = site
        self._folder = folder
        self._store = store
        self._archive = archive
        self._reporter = reporter
        self._log = log
        # Silent until the processes run.
        self.hang = HangWatch(0, {}, lambda: 0.0)

    def watch(
        self,
        sandbox: Sandbox,
        tail: MetricTail,
        launcher_logs: LauncherLogs,
        shipping: LogShipping,
        *,
        asked_to_end: Callable[[float, float | None], Ending | None],
        gang: Gang | None,
        is_served: Callable[[], bool],
        note: Callable[[str], None],
    ) -> Ending:
        """Watch until every process has ended; how the node's run ends.

        `asked_to_end` is told the time and the deadline, and tells how to end if someone wants that. `is_served` tells
        whether the platform moves data for the job at this moment.
        """
        limits = self._launch.limits
        exits: dict[int, RankExit] = {}
        began = time.monotonic()
        deadline = began + limits.seconds if limits.seconds else None
        # A run of less than a second has no use worth a sample, and archiving one would cost more than the run.
        next_metrics = next_system = began + _METRICS_EVERY
        cut_short: Ending | None = None
        fault = ""
        sampler = SystemSampler(device_kind=self._launch.device_kind, devices=self._launch.devices)
        sampler.start()
        hold = HoldWatch(sandbox.init_pid, is_wanted=limits.hold > 0)
        hang = self.hang = HangWatch(
            limits.hang,
            {process.rank: self._folder.rank_log(process.rank) for process in self._launch.processes},
            lambda: sandbox.usage().cpu_seconds,
        )
        warning = TimeWarning(
            sandbox.init_pid,
            limits.warn_signal,
            deadline - limits.warn if deadline is not None and limits.warn else None,
            deadline or 0.0,
            self._tell,
        )
        idle = IdleWatch(
            limits.idle,
            len(self._launch.processes),
            lambda: Activity(sandbox.usage().cpu_seconds, sampler.is_device_used or is_served()),
            lambda: count_bytes(sandbox.init_pid),
        )
        kept = KeptFoldersWatch(Path(self._site.kept_folders), self._site.kept_quota_bytes)
        if self._launch.kept:
            kept.start()
        exporter = self._export(note)
        checkpoints = self._bring_checkpoints()
        has_rest = False
        poller = select.poll()
        poller.register(sandbox.fileno(), select.POLLIN)
        if gang is not None and gang.fileno() >= 0:
            poller.register(gang.fileno(), select.POLLIN)
        try:
            while len(exits) < len(self._launch.processes):
                poller.poll(_TICK * 1000)
                for event in sandbox.poll():
                    if isinstance(event, RankExit):
                        exits[event.rank] = event
                        self._reporter.rank_ended(event)
                    elif isinstance(event, SandboxEnded) and event.message:
                        fault = event.message
                now = time.monotonic()
                if cut_short is None:
                    # Before the limit is looked at: a runner that was halted meanwhile still warns.
                    warning.look(now)
                    cut_short = asked_to_end(now, deadline) or kept.check()
                    if cut_short is not None:
                        self._log.say(f"{cut_short.message} SIGTERM now, SIGKILL in {limits.grace} s")
                        sandbox.stop(limits.grace)
                sandbox.check_limits()
                if hold.look(now):
                    self._reporter.hold(hold.held_since)
                if hang.look(now):
                    self._reporter.fall_silent(hang.silent_since)
                if idle.look(now):
                    self._reporter.fall_idle(idle.idle_since)
                if now >= next_metrics:
                    if not has_rest:
                        load_rest()
                        has_rest = True
                    tail.read()
                    launcher_logs.read()
                    shipping.ship()
                    next_metrics = now + _METRICS_EVERY
                if now >= next_system:
                    self._sample(sandbox, sampler)
                    next_system = now + _SYSTEM_EVERY
        finally:
            sampler.stop()
            if exporter is not None:
                exporter.stop()
            if checkpoints is not None:
                checkpoints.stop()
            kept.stop()
            launcher_logs.read(final=True)
        ends = list(exits.values())
        failed = [end for end in ends if end.exit_code]
        # A rank that SIGTERM reached was not done, even if it then left with 0: that is how good scripts leave.
        was_cut = any(end.ended_by_platform for end in ends)
        # A rank that had failed by itself before tells more than the stop that its failure brought about.
        is_own = cut_short is not None and cut_short.outcome == "stopped"
        is_own = is_own and not all(end.ended_by_platform for end in failed)
        if cut_short is not None and (cut_short.code == "hang" or ((failed or was_cut) and not is_own)):
            return cut_short
        out_of_memory = sandbox.out_of_memory()
        if fault and not out_of_memory:
            return Ending(
                "failed",
                "platform",
                "sandbox",
                fault,
                "Rerun the job; `trainshed doctor` checks this machine.",
            )
        if not failed:
            return Ending("completed")
        from trainshed.model.diagnosis import diagnose_ranks

        return diagnose_ranks(
            ends,
            {rank: self._tail_of(rank) for rank, rank_exit in exits.items() if rank_exit.exit_code},
            out_of_memory=out_of_memory,
            memory_mb=limits.memory_mb,
            node=self._launch.node_index,
            launcher_tails=launcher_logs.tails(),
        )

    def _export(self, note: Callable[[str], None]) -> LiveExport | None:
        """Begin to write the logs to the job's `log_url`, if it has one."""
        if not self._launch.log_bucket:
            return None
        from trainshed.runner.live_export import LiveExport

        exporter = LiveExport(self._launch, self._store, self._archive, self._folder, note)
        exporter.start()
        return exporter

    def _bring_checkpoints(self) -> LiveCheckpoints | None:
        """Begin to bring checkpoints home, where the end of the job may be too late for that."""
        if self._launch.checkpoints is None or not self._site.checkpoint_seconds:
            return None
        from trainshed.runner.live_checkpoints import LiveCheckpoints

        checkpoints = LiveCheckpoints(
            self._launch,
            self._store,
            self._folder.root,
            every=self._site.checkpoint_seconds,
            limit=self._site.checkpoint_bytes,
            say=self._log.say,
            clock_lag=self._site.clock_lag,
        )
        checkpoints.start()
        return checkpoints

    def _tell(self, message: str) -> None:
        self._log.say(message)
        self._reporter.enter("training", message)

    def _sample(self, sandbox: Sandbox, sampler: SystemSampler) -> None:
        sample = sampler.sample(time.time(), usage=sandbox.usage())
        with self._folder.system_metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(sample) + "\n")

    def _tail_of(self, rank: int) -> str:
        try:
            with self._folder.rank_log(rank).open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""
