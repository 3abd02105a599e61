"""One node of one attempt, from the empty run folder to the final report."""

from __future__ import annotations

import dataclasses
import functools
import json
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from trainshed.model.attempt import Ending
from trainshed.model.errors import TrainshedError
from trainshed.model.home import RunFolder
from trainshed.model.launch_plan import NodeLaunch
from trainshed.runner.broker import Broker
from trainshed.runner.disk_watch import DiskWatch
from trainshed.runner.endings import (
    ending_for_others,
    ending_of,
    ending_of_os,
    time_limit_ending,
)
from trainshed.runner.environment.built import EnvironmentPaths, find_environment
from trainshed.runner.reporter import PlatformLog, Reporter
from trainshed.runner.sandbox import Sandbox, SandboxProcess
from trainshed.runner.sandbox_plan import plan_sandbox, renumber_devices, trust_variables
from trainshed.runner.site import read_secrets, read_site
from trainshed.runner.ssh import Gate, plan_door
from trainshed.runner.staging import StagedFolders, give_to, stage, watch_copies
from trainshed.runner.work_folders import WorkFolders
from trainshed.store import open_store
from trainshed.store.outage import GIVEN_UP, Patience

if TYPE_CHECKING:
    from trainshed.runner.gang import Gang
    from trainshed.runner.log_archive import LogArchive
    from trainshed.runner.log_shipping import LogShipping
    from trainshed.runner.metric_tail import MetricTail
    from trainshed.runner.training_watch import TrainingWatch
    from trainshed.store.object_store import ObjectStore

__all__ = ["NodeRun"]


class _StopAsked(Exception):
    """The run was asked to stop before its processes started."""


class NodeRun:
    """The walk of one node: stage, install, train, upload, report."""

    def __init__(self, folder: RunFolder, launch: NodeLaunch, gang: Gang | None = None) -> None:
        self._folder = folder
        self._launch = launch
        # The job's other nodes on this machine, if there are any.
        self._gang = gang
        self._site = read_site(folder)
        self._secrets = read_secrets(folder)
        self._log = PlatformLog(folder.platform_log)
        self._patience = Patience(self._site.store_patience, self._is_stop_asked, self._log.say)
        self._reporter = Reporter(folder, self._launch, self._site.doorbell, is_durable=self._site.is_durable)
        self._disk = DiskWatch(folder.path, self._site.disk_reserve_bytes)
        self._folders: StagedFolders | None = None
        self._work: WorkFolders | None = None
        self._watch: TrainingWatch | None = None
        self._terminated = False

    @functools.cached_property
    def _store(self) -> ObjectStore:
        return open_store(self._site.store_url, self._patience)

    @functools.cached_property
    def _archive(self) -> LogArchive:
        from trainshed.runner.log_archive import LogArchive, archive_prefix

        prefix = archive_prefix(self._launch.job_id, self._launch.attempt, self._launch.node_index)
        return LogArchive(
            self._store, prefix, self._site.log_segment_bytes, list(self._secrets.values()), is_new=True
        )

    @functools.cached_property
    def _shipping(self) -> LogShipping:
        from trainshed.runner.homecoming import log_streams
        from trainshed.runner.log_shipping import LogShipping

        return LogShipping(
            self._archive,
            lambda: log_streams(self._launch, self._folder),
            self._note,
            is_far=not self._site.store_url.startswith("file:"),
        )

    def walk(self) -> None:
        """Run to the end. Whatever happens, a final report is the last thing written."""
        signal.signal(signal.SIGTERM, self._on_sigterm)
        # A runner that loads its code before it has a node to run holds the signal back so far.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
        self._reporter.begin()
        try:
            ending = self._run()
        except _StopAsked:
            ending = self._asked_to_stop() or self._stopped()
        except TrainshedError as fault:
            # Whoever waits for a store that is away gives up when the job is stopped.
            given_up = self._asked_to_stop() if fault.code in ("store_unreachable", GIVEN_UP) else None
            ending = given_up or ending_of(fault)
        except OSError as fault:
            ending = ending_of_os(fault)
        except Exception as fault:
            import traceback

            self._note(traceback.format_exc())
            ending = Ending(
                "failed",
                "platform",
                "runner",
                f"The runner met an unexpected fault: {fault}.",
                "Rerun the job; the administrator finds the details in runner.log.",
            )
        self._finish(ending)

    def _run(self) -> Ending:
        self._disk.require_room()
        self._reporter.enter("staging")
        for item in self._launch.inputs:
            if not item.host_path:
                from trainshed.store.tenancy import require_own_bucket

                require_own_bucket(self._store, item.bucket, self._launch.workspace_id)
        self._folders = stage(
            self._launch,
            lambda: self._store,
            self._site,
            self._folder.root,
            self._log.say,
            self._check_stop,
            has_code=self._folder.code_here.exists(),
        )
        if self._launch.checkpoints is not None:
            from trainshed.runner.checkpoints import stage_checkpoints

            stage_checkpoints(self._launch, self._store, self._folder.root, self._log.say)
        self._check_stop()
        environment = self._install()
        self._check_stop()
        return self._train(self._folders, environment)

    def _install(self) -> EnvironmentPaths:
        if not self._site.allow_unsandboxed:
            found = find_environment(self._launch.environment.digest, Path(self._site.environments))
            if found is not None:
                return found
        from trainshed.runner.environment.build import ensure_environment

        return ensure_environment(
            self._launch.environment,
            Path(self._site.environments),
            self._log.write,
            on_build=lambda: self._reporter.enter("installing", "building the environment"),
            uid=self._site.uid,
            install_uid=self._site.install_uid,
            sandboxed=not self._site.allow_unsandboxed,
            should_stop=lambda: self._asked_to_stop() is not None,
        )

    def _train(self, folders: StagedFolders, environment: EnvironmentPaths) -> Ending:
        job_metrics = folders.run / "metrics.jsonl"
        job_metrics.touch()
        if self._site.uid is not None:
            give_to(folders.root, self._site.uid)
        spec = plan_sandbox(self._launch, self._site, self._folder, folders, environment)
        broker = Broker(self._folder.path / "broker.sock")
        if self._site.uid is not None:
            broker.give_to(self._site.uid)
        door = plan_door(self._launch, self._folder)
        gate: Gate | None = None
        tail: MetricTail | None = None
        sandbox = Sandbox(
            dataclasses.replace(
                spec,
                mounts=(*spec.mounts, broker.mount, *door.mounts),
                files=(*spec.files, *door.files),
                shared_network=self._gang.network if self._gang is not None else -1,
            )
        )
        sandbox.prepare(watch_copies(self._log.say, self._check_stop))
        if self._gang is not None and sandbox.kind != "none" and self._launch.network != "open":
            self._gang.require_network()
        self._reporter.describe(sandbox.kind, sandbox.limits_in_force)
        if sandbox.kind == "none":
            self._log.say("WARNING: this job runs without a sandbox")
        if self._launch.ssh_port and (door.reason or sandbox.kind == "none"):
            reason = door.reason or "it is only served inside a sandbox"
            self._log.say(f"ssh is off: {reason}")
            self._folder.ssh_off.write_text(reason)
        # Where a job reaches the network, its own `pip install` asks the same index as the platform's.
        pip_settings = {}
        if self._launch.network == "open":
            from trainshed.runner.environment.index import read_pip_settings

            pip_settings = read_pip_settings().pip_variables()
        is_walled = sandbox.kind != "none"
        trust = trust_variables(self._site, is_walled=is_walled)
        self._work = WorkFolders(self._launch, self._folder, folders)
        self._work.remember(is_durable=self._site.is_durable)
        processes = [
            SandboxProcess(
                rank=process.rank,
                arguments=process.arguments,
                variables={
                    **pip_settings,
                    **trust,
                    **renumber_devices(self._launch, process.variables, is_walled=is_walled),
                    **self._secrets,
                },
                directory=process.directory,
                log=self._folder.rank_log(process.rank),
            )
            for process in self._launch.processes
        ]
        try:
            if self._gang is not None:
                if sandbox.kind != "none":
                    door = door.listen(self._gang.network)
                self._gang.meet(self._check_stop, self._log.say)
            # From here on the attempt counts as run: it is never started again under this number.
            self._reporter.enter("training", launched=True)
            sandbox.start(processes, door.services(processes) if sandbox.kind != "none" else ())
            # Only now: threads must not be there when the job is started.
            broker.start(sandbox.bindings, lambda: self._store, self._launch.workspace_id)
            if door.port and sandbox.kind != "none":
                gate = Gate.open(self._folder.ssh_gate, sandbox.init_pid, door.address, door.port)
            from trainshed.runner.launcher_logs import LauncherLogs
            from trainshed.runner.metric_tail import MetricTail
            from trainshed.runner.training_watch import TrainingWatch

            tail = MetricTail(
                {process.rank: process.log for process in processes},
                job_metrics,
                self._folder.metrics,
                processes[0].rank,
            )
            self._watch = TrainingWatch(
                self._launch, self._site, self._folder, self._store, self._archive, self._reporter, self._log
            )
            return self._watch.watch(
                sandbox,
                tail,
                LauncherLogs(self._work, self._folder),
                self._shipping,
                asked_to_end=self._asked_to_end,
                gang=self._gang,
                is_served=lambda: broker.is_busy,
                note=self._note,
            )
        finally:
            if gate is not None:
                gate.close()
            sandbox.close()
            door.forget()
            broker.close()
            if tail is not None:
                tail.read(final=True)
                tail.close()

    def _asked_to_end(self, now: float, deadline: float | None) -> Ending | None:
        asked = self._asked_to_stop()
        if asked is not None:
            return asked
        if deadline is not None and now >= deadline:
            return time_limit_ending(self._launch)
        return self._disk.check()

    def _finish(self, ending: Ending) -> None:
        from trainshed.runner.closing import Closing

        # A store that has been away all through the training may still come back for what it made.
        self._patience.note_heard()
        if self._gang is not None:
            self._gang.leave(ending.outcome)
        closing = Closing(
            self._launch,
            self._site,
            self._folder,
            self._reporter,
            self._log,
            self._secrets,
            lambda: self._store,
            lambda: self._shipping,
            self._note,
        )
        closing.close(ending, self._folders, self._work)

    def _stopped(self) -> Ending:
        reason = "The job was stopped."
        if self._terminated:
            reason = "The node's processes were asked to end from outside the platform."
        try:
            asked = json.loads(self._folder.stop.read_text("utf-8"))
            reason = asked["reason"] or reason
            if asked.get("outcome") == "completed":
                return Ending("completed", message=reason)
            if asked.get("outcome") == "hung" and self._watch is not None:
                return self._watch.hang.ending(self._launch.node_index, time.time())
            if asked.get("outcome") in ("idle", "preempted"):
                return ending_for_others(asked["outcome"], reason)
        except (OSError, ValueError, KeyError):
            pass
        return Ending("stopped", "stop", "stopped", reason)

    def _check_stop(self) -> None:
        if self._asked_to_stop() is not None:
            raise _StopAsked

    def _asked_to_stop(self) -> Ending | None:
        """How to end, if someone wants that: the platform, the machine, or the fate of the job's other nodes."""
        if self._terminated or self._folder.stop.exists():
            return self._stopped()
        if self._gang is not None:
            self._gang.take_news()
            return self._gang.ending
        return None

    def _is_stop_asked(self) -> bool:
        return self._terminated or self._folder.stop.exists()

    def _on_sigterm(self, *_: object) -> None:
        self._terminated = True

    def _note(self, text: str) -> None:
        try:
            with self._folder.runner_log.open("a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text.rstrip()}\n")
        except OSError:
            sys.stderr.write(text)
