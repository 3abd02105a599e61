"""The local engine: every node of an attempt is a detached runner on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from trainshed.durable import remove_tree, write_durably
from trainshed.engines.engine import AttemptLaunch, NodeObservation, StopOutcome
from trainshed.engines.local.fork_request import request_fork
from trainshed.engines.local.liveness import is_alive, take_lock
from trainshed.model.attempt import NodeReport
from trainshed.model.flavor import Node
from trainshed.model.home import Home, RunFolder
from trainshed.model.launch_plan import from_json, to_json
from trainshed.model.ssh import KEY_NAMES

__all__ = ["LocalEngine"]


class LocalEngine:
    """Runs attempts on this machine. All its knowledge lies in the run folders, none in memory."""

    name = "local"
    queues = False

    def __init__(
        self, home: Home, inventory: Callable[[], list[Node]], site: Callable[[str], dict[str, Any]]
    ) -> None:
        self._home = home
        self._inventory = inventory
        # Facts of this site for a workspace's runners (store, ports, user id), kept out of the plan.
        self._site = site

    def capacity(self) -> list[Node]:
        """This machine."""
        return self._inventory()

    def submit(self, launch: AttemptLaunch) -> None:
        """Start one runner per node, each holding its lock from before its first instruction."""
        for node in launch.nodes:
            folder = self._home.run_folder(node.job_id, node.attempt, node.node_index)
            folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = take_lock(folder.lock)
            if lock is None:
                continue
            try:
                if folder.status.exists():
                    continue
                write_durably(folder.site, self._site(node.workspace_id))
                secrets = {name: launch.secrets[name] for name in node.secret_names}
                if node.ssh_port:
                    secrets |= {name: launch.secrets[name] for name in KEY_NAMES if name in launch.secrets}
                write_durably(folder.secrets, secrets)
                write_durably(folder.launch, to_json(node))
                self._start(folder, lock, ())
            finally:
                os.close(lock)

    def describe(self, job_id: str, attempt: int, nodes: int) -> list[NodeObservation]:
        """What the lock and the status file of each node say."""
        return [self._observe(index, self._home.run_folder(job_id, attempt, index)) for index in range(nodes)]

    def cancel(
        self,
        job_id: str,
        attempt: int,
        *,
        reason: str,
        outcome: StopOutcome = "stopped",
    ) -> None:
        """Leave a request to stop in every node's folder; its runner looks for it all the time."""
        for folder in self._folders(job_id, attempt):
            if not folder.stop.exists():
                write_durably(folder.stop, {"reason": reason, "outcome": outcome})

    def salvage(self, job_id: str, attempt: int) -> None:
        """Start a runner that only brings home what a dead one, or one on a full disk, left behind."""
        for folder in self._folders(job_id, attempt):
            lock = take_lock(folder.lock)
            if lock is None:
                continue
            try:
                report = _read_report(folder)
                is_home = report is not None and report.ending is not None and not report.left_behind
                if folder.launch.exists() and not is_home:
                    self._start(folder, lock, ("--salvage",))
            finally:
                os.close(lock)

    def discard(self, job_id: str, attempt: int) -> bool:
        """Remove the attempt's run folders, unless a runner still lives in one."""
        folders = self._folders(job_id, attempt)
        if any(is_alive(folder.lock) for folder in folders):
            return False
        for folder in folders:
            remove_tree(folder.path)
        for parent in (self._home.jobs / job_id / f"attempt-{attempt}", self._home.jobs / job_id):
            try:
                parent.rmdir()
            except OSError:
                break
        return True

    def dry_run(self, launch: AttemptLaunch) -> str:
        """The commands that would start the runners."""
        return "\n".join(
            " ".join(_command(self._home.run_folder(node.job_id, node.attempt, node.node_index), ()))
            for node in launch.nodes
        )

    def _observe(self, index: int, folder: RunFolder) -> NodeObservation:
        # The lock is asked first: a runner that ends between the two questions is then seen as alive once
        # more, never as lost.
        alive = is_alive(folder.lock)
        report = _read_report(folder)
        if report is not None and report.ending is not None:
            # The final report is the last thing that a runner writes: its processes are gone by then.
            return NodeObservation(index, "ended", report)
        if alive:
            return NodeObservation(index, "alive", report)
        return NodeObservation(index, "lost" if folder.launch.exists() else "absent", report)

    def _folders(self, job_id: str, attempt: int) -> list[RunFolder]:
        parent = self._home.jobs / job_id / f"attempt-{attempt}"
        if not parent.is_dir():
            return []
        return [RunFolder(path) for path in sorted(parent.iterdir()) if path.name.startswith("node-")]

    def _start(self, folder: RunFolder, lock: int, options: tuple[str, ...]) -> None:
        if not options and request_fork(self._home, folder.path, lock) is not None:
            return
        with folder.runner_log.open("ab") as log:
            # The runner detaches itself by a fork, so this returns as soon as its interpreter is up.
            subprocess.run(
                [*_command(folder, options), "--lock", str(lock)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),
                cwd="/",
                timeout=60,
                check=True,
            )


def _command(folder: RunFolder, options: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "trainshed.runner.main", *options, str(folder.path)]


def _read_report(folder: RunFolder) -> NodeReport | None:
    try:
        return from_json(NodeReport, json.loads(folder.status.read_text("utf-8")))
    except FileNotFoundError:
        return None
