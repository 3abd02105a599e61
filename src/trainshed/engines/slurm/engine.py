"""The Slurm engine: every attempt is one job of the cluster, every node of it one runner started by srun.

What is known of an attempt lies in its folder (the submission, and a mirror of each node's run folder, which the
nodes fill over HTTP) and in Slurm; nothing that matters is kept in memory. A job is found again by its name, never by
its number: a controller that is killed may lose a job that it has acknowledged and give its number to another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from trainshed.durable import write_durably
from trainshed.engines.engine import Allocation, AttemptLaunch, NodeObservation, RemoteStart
from trainshed.engines.slurm.accounts import find_account
from trainshed.engines.slurm.answers import (
    JobEnd,
    QueuedJob,
    read_allocation,
    read_nodes,
    read_partitions,
)
from trainshed.engines.slurm.attempt_folder import AttemptFolder, Submission
from trainshed.engines.slurm.bad_nodes import BadNodes
from trainshed.engines.slurm.batch_script import job_name, render_batch_script
from trainshed.engines.slurm.board import Board
from trainshed.engines.slurm.commands import Commands, SlurmRefusal
from trainshed.engines.slurm.reasons import Words, explain_end, explain_refusal, explain_wait
from trainshed.model.attempt import Ending, NodeReport
from trainshed.model.errors import NotAllowed, Unavailable
from trainshed.model.flavor import Node
from trainshed.model.home import Home, RunFolder
from trainshed.model.pools import Pool, find_pool

__all__ = ["SlurmEngine"]

# For so long after a submission a job that Slurm does not show may still be one that it has.
_UNCONFIRMED_SECONDS = 10.0
# For so long a controller may be silent before the truth about running jobs counts as not known.
_PATIENCE_SECONDS = 300.0
# How long after a rank's end by a signal Slurm is asked whether it was the one who sent it.
_VERDICT_SECONDS = 30.0
# A stop that the runner does not carry out: after the grace, and this much more, Slurm ends the job.
_STOP_MARGIN, _UPLOAD_MARGIN = 30.0, 1800.0
# Ends that come from Slurm: what the runner saw of them are signals only.
_FROM_OUTSIDE = ("PREEMPTED", "NODE_FAIL", "TIMEOUT", "CANCELLED", "DEADLINE", "OUT_OF_MEMORY", "BOOT_FAIL")
_MACHINE_FAULTS = ("runner_lost", "node_failed", "no_python", "platform_unreachable")
_SIGNALS = (9, 15)

log = logging.getLogger("trainshed.engines.slurm")


class SlurmEngine:
    """Runs attempts on a cluster of Slurm."""

    name = "slurm"
    queues = True

    def __init__(
        self,
        pools: Sequence[Pool],
        start: Callable[[AttemptLaunch], RemoteStart],
        home: Home,
        clock: Callable[[], float],
        *,
        platform: str,
        commands: Commands | None = None,
        bring_home: Callable[[RunFolder], str] = lambda folder: "",
    ) -> None:
        self._pools = tuple(pool for pool in pools if pool.engine == "slurm")
        self._start = start
        self._home = home
        self._clock = clock
        self._platform = platform
        self._commands = commands or Commands()
        # Archives what a mirror holds of a lost node; returns what could not be brought home, in words.
        self._bring_home = bring_home
        self._board = Board(self._commands, platform, self._pools)
        self._bad_nodes = BadNodes(home.run / "slurm-nodes.json")

    def capacity(self) -> list[Node]:
        """The machines of all pools; one that belongs to several of them stands there for each."""
        text = self._commands.run("scontrol", "-o", "show", "nodes").out
        partitions = read_partitions(self._commands.run("scontrol", "-o", "show", "partitions").out)
        default = next((name for name, row in partitions.items() if row.get("Default") == "YES"), "")
        nodes: list[Node] = []
        for pool in self._pools:
            nodes += read_nodes(text, pool.name, pool.partition or default, pool.gres)
        bad = set(self._bad_nodes.names(self._clock()))
        return [
            replace(node, state="drained", reason="Starts failed here again and again; left out for an hour.")
            if node.name in bad and node.state == "ready"
            else node
            for node in nodes
        ]

    def submit(self, launch: AttemptLaunch) -> None:
        """Hand the attempt to Slurm, unless Slurm has it. What Slurm refuses for good ends the attempt."""
        folder = AttemptFolder(self._home, launch.job_id, launch.attempt)
        name = job_name(self._platform, launch.job_id, launch.attempt)
        wanted = launch.wanted
        assert wanted is not None, "an attempt for Slurm says what it wants"
        known = folder.read()
        is_fresh = known is not None and self._clock() - known.submitted_at < _UNCONFIRMED_SECONDS
        account = known.account if known else ""
        if is_fresh or any(not job.is_over for job in self._board.find(name, account, fresh=True)):
            return
        folder.make(wanted.nodes)
        try:
            pool = find_pool(launch.pool, self._pools)
            account = find_account(pool, launch.owner)
            start = self._start(launch)
            script = render_batch_script(
                launch, pool, start, self._platform, self._left_out(pool, wanted.nodes)
            )
            submission = Submission(name, pool.name, wanted.nodes, wanted.grace, self._clock(), account)
            # Written before: after a crash in between, Slurm is asked by name before anything is handed over again.
            folder.write(submission)
            done = self._commands.run(
                "sbatch", "--parsable", given=script, account=account, variables=start.variables
            )
        except (SlurmRefusal, NotAllowed) as fault:
            words = (
                explain_refusal(fault.said)
                if isinstance(fault, SlurmRefusal)
                else Words(fault.message, fault.hint)
            )
            ending = Ending("failed", "user", fault.code, words.reason, words.hint, time=self._clock())
            for index in range(wanted.nodes):
                folder.write_report(self._report(launch.job_id, launch.attempt, index, ending))
            return
        number = done.out.strip().partition(";")[0]
        folder.write(replace(submission, id=int(number) if number.isdigit() else 0))
        self._board.ask_again()

    def describe(self, job_id: str, attempt: int, nodes: int) -> list[NodeObservation]:
        """What the mirrors and Slurm say of each node."""
        folder = AttemptFolder(self._home, job_id, attempt)
        submission = folder.read()
        reports = [folder.report(index) for index in range(nodes)]
        if all(report is not None and _is_plain_end(report) for report in reports):
            # They have said all there is: Slurm need not be asked.
            self._forgive(submission, reports)
            return [NodeObservation(index, "ended", report) for index, report in enumerate(reports)]
        if submission is None:
            return [
                NodeObservation(index, "ended" if report and report.ending else "absent", report)
                for index, report in enumerate(reports)
            ]
        try:
            jobs = self._find(submission)
        except Unavailable as fault:
            return self._observe_without_slurm(reports, fault)
        self._end_doubles(jobs, submission)
        return self._observe(folder, submission, jobs[0] if jobs else None, reports)

    def cancel(
        self,
        job_id: str,
        attempt: int,
        *,
        reason: str,
        outcome: Literal["stopped", "completed", "hung"] = "stopped",
    ) -> None:
        """Leave a request to stop in every mirror; what waits in Slurm, or does not obey, is cancelled there."""
        folder = AttemptFolder(self._home, job_id, attempt)
        submission = folder.read()
        if submission is None:
            return
        folder.make(submission.nodes)
        for index in range(submission.nodes):
            stop = folder.node(index).stop
            if not stop.exists():
                write_durably(stop, {"reason": reason, "outcome": outcome})
        for job in self._find(submission):
            if job.is_waiting:
                # By its state as well: one that starts at this very moment is stopped by its runner.
                self._scancel(submission, job, "--state=PENDING")
            elif not job.is_over and self._has_disobeyed(folder, submission):
                self._scancel(submission, job)

    def salvage(self, job_id: str, attempt: int) -> None:
        """Write the final reports of nodes that cannot do so any more, with the reason that Slurm gives."""
        folder = AttemptFolder(self._home, job_id, attempt)
        submission = folder.read()
        if submission is None:
            return
        for job in self._find(submission):
            if not job.is_over:
                self._scancel(submission, job)
        end = self._ask_end(submission)
        hosts: list[str] = []
        for index in range(submission.nodes):
            report = folder.report(index)
            if report is not None and report.ending is not None and not report.left_behind:
                continue
            ending = (report.ending if report else None) or replace(
                explain_end(end, index), time=self._clock()
            )
            fault = self._bring_home(folder.node(index)) if report is not None else ""
            fresh = report or self._report(job_id, attempt, index, ending)
            folder.write_report(
                replace(
                    fresh,
                    stage="ended",
                    ending=ending,
                    ended_at=fresh.ended_at or self._clock(),
                    left_behind=(fault,) if fault else (),
                )
            )
            if ending.code in _MACHINE_FAULTS and not hosts:
                hosts = self._hosts_of(submission)
        if hosts:
            self._bad_nodes.blame(hosts, self._clock())

    def discard(self, job_id: str, attempt: int) -> bool:
        """Remove the mirrors, unless Slurm still runs the job or cannot say."""
        folder = AttemptFolder(self._home, job_id, attempt)
        submission = folder.read()
        if submission is not None:
            try:
                if any(not job.is_over for job in self._find(submission)):
                    return False
            except Unavailable:
                return False
        folder.remove()
        return True

    def dry_run(self, launch: AttemptLaunch) -> str:
        """The batch script that would be handed over; names of secret variables, never their values."""
        pool = find_pool(launch.pool, self._pools)
        start = self._start(launch)
        wanted = launch.wanted
        left_out = self._left_out(pool, wanted.nodes) if wanted else []
        script = render_batch_script(launch, pool, start, self._platform, left_out)
        account = find_account(pool, launch.owner)
        command = f"sudo -n -u {account} -- sbatch --parsable" if account else "sbatch --parsable"
        names = ", ".join(sorted(start.variables))
        return f"# {command}" + (f", with the variables {names}" if names else "") + f"\n{script}"

    def allocation(self, job_id: str, attempt: int) -> list[Allocation]:
        """The machines that Slurm gave to a running attempt, in their order, with the indices of their devices."""
        submission = AttemptFolder(self._home, job_id, attempt).read()
        if submission is None:
            return []
        pool = find_pool(submission.pool, self._pools)
        for job in self._find(submission):
            if not job.is_over and not job.is_waiting:
                text = self._commands.run("scontrol", "-d", "show", "job", str(job.id)).out
                if f"JobName={submission.name}" in text:
                    return read_allocation(text, pool.gres.values())
        return []

    def _find(self, submission: Submission) -> list[QueuedJob]:
        return self._board.find(submission.name, submission.account)

    def _ask_end(self, submission: Submission) -> JobEnd | None:
        return self._board.ask_end(submission.name, submission.account, submission.submitted_at)

    def _observe(
        self,
        folder: AttemptFolder,
        submission: Submission,
        job: QueuedJob | None,
        reports: list[NodeReport | None],
    ) -> list[NodeObservation]:
        has_run = any(report is not None for report in reports)
        if job is None and not has_run:
            if self._clock() - submission.submitted_at < _UNCONFIRMED_SECONDS:
                return _all("queued", reports, "Slurm has not confirmed it yet.")
            # Lost by a controller that died, or ended long ago. A second start is refused where the first one began.
            ended = self._ask_end(submission)
            return _all("lost" if ended is not None else "absent", reports)
        if job is not None and job.is_waiting and not has_run:
            words = explain_wait(job)
            return [
                NodeObservation(index, "queued", None, words.reason, words.hint)
                for index in range(len(reports))
            ]
        # One that waits again although it had begun is not given a second life: its attempt is over.
        is_over = job is None or job.is_over or job.is_waiting
        seen = []
        for index, report in enumerate(reports):
            if report is not None and report.ending is not None:
                state = job.state if job else self._forgotten_state(submission, report)
                seen.append(self._judge(folder, index, report, state, is_over=is_over))
            else:
                seen.append(NodeObservation(index, "lost" if is_over else "alive", report))
        return seen

    def _judge(
        self, folder: AttemptFolder, index: int, report: NodeReport, state: str, *, is_over: bool
    ) -> NodeObservation:
        """A final report, with the reason that only Slurm knows where it speaks of a signal alone."""
        if _is_plain_end(report) or _was_asked_to_stop(folder.node(index)):
            return NodeObservation(index, "ended", report)
        if not is_over and self._clock() - report.ended_at < _VERDICT_SECONDS:
            return NodeObservation(index, "alive", replace(report, ending=None))
        if state in _FROM_OUTSIDE:
            ending = replace(explain_end(JobEnd(state), index), time=report.ended_at)
            return NodeObservation(index, "ended", replace(report, ending=ending))
        return NodeObservation(index, "ended", report)

    def _forgotten_state(self, submission: Submission, report: NodeReport) -> str:
        """What accounting, where there is any, says of a job that the controller does not know any more."""
        if _is_plain_end(report):
            return ""
        end = self._ask_end(submission)
        return end.state if end else ""

    def _observe_without_slurm(
        self, reports: list[NodeReport | None], fault: Unavailable
    ) -> list[NodeObservation]:
        """Runners do not need Slurm's controller: for a while they are believed to go on."""
        if not any(reports):
            return _all("queued", reports, fault.message)
        is_long = self._board.silent_for > _PATIENCE_SECONDS
        return [
            NodeObservation(index, "ended", report)
            if report is not None and report.ending is not None
            else NodeObservation(index, "unknown" if is_long else "alive", report)
            for index, report in enumerate(reports)
        ]

    def _end_doubles(self, jobs: list[QueuedJob], submission: Submission) -> None:
        """Of two live jobs of one name only the first may go on: a submission was lost and came back."""
        for job in [job for job in jobs if not job.is_over][1:]:
            log.warning("%s is twice in Slurm; %d is cancelled", submission.name, job.id)
            self._scancel(submission, job)

    def _scancel(self, submission: Submission, job: QueuedJob, *options: str) -> None:
        # Name and number: a number alone may be another's by now.
        line = ("scancel", *options, f"--name={submission.name}", str(job.id))
        try:
            self._commands.run(*line, account=submission.account)
        except SlurmRefusal as fault:
            # It has ended by itself in the meantime; if not, the next look shows it again.
            log.info("%s: %s", submission.name, fault.said)
        self._board.ask_again()

    def _has_disobeyed(self, folder: AttemptFolder, submission: Submission) -> bool:
        asked = min(folder.node(index).stop.stat().st_mtime for index in range(submission.nodes))
        waited = self._clock() - asked
        reports = [folder.report(index) for index in range(submission.nodes)]
        if not any(reports):
            # Nothing of the user's runs yet.
            return waited > _STOP_MARGIN / 2
        brings_home = any(report is not None and report.stage == "uploading" for report in reports)
        return waited > submission.grace + (_UPLOAD_MARGIN if brings_home else _STOP_MARGIN)

    def _left_out(self, pool: Pool, wanted: int) -> list[str]:
        bad = self._bad_nodes.names(self._clock())
        if not bad:
            return []
        try:
            text = self._commands.run("scontrol", "-o", "show", "nodes").out
        except (SlurmRefusal, Unavailable):
            return []
        names = [node.name for node in read_nodes(text, pool.name, pool.partition, pool.gres)]
        mine = [name for name in bad if name in names]
        # Better a bad machine than none.
        return mine if len(names) - len(mine) >= max(wanted, len(names) / 2) else []

    def _hosts_of(self, submission: Submission) -> list[str]:
        for job in self._find(submission):
            try:
                text = self._commands.run("scontrol", "-d", "show", "job", str(job.id)).out
            except (SlurmRefusal, Unavailable):
                continue
            return [item.node for item in read_allocation(text)]
        return []

    def _forgive(self, submission: Submission | None, reports: list[NodeReport | None]) -> None:
        if submission is None or not self._bad_nodes.names(self._clock()):
            return
        if all(report and report.ending and report.ending.outcome == "completed" for report in reports):
            try:
                self._bad_nodes.forgive(self._hosts_of(submission))
            except Unavailable:
                return

    def _report(self, job_id: str, attempt: int, index: int, ending: Ending) -> NodeReport:
        now = self._clock()
        return NodeReport(
            job_id, attempt, index, 0, "ended", ending=replace(ending, node=index), ended_at=now
        )


def _is_plain_end(report: NodeReport) -> bool:
    """Whether a report is final and does not leave open who sent a signal."""
    ending = report.ending
    if ending is None:
        return False
    # Slurm signals every process of a node at once: what the runner sees is a sandbox or a rank that is gone.
    by_signal = ending.signal in _SIGNALS or ending.cause in ("platform", "node")
    return ending.outcome == "completed" or (ending.outcome == "failed" and not by_signal)


def _was_asked_to_stop(folder: RunFolder) -> bool:
    """Whether the request to stop was there before the final report."""
    try:
        return folder.stop.stat().st_mtime_ns <= folder.status.stat().st_mtime_ns
    except FileNotFoundError:
        return False


def _all(
    state: Literal["absent", "queued", "lost"], reports: list[NodeReport | None], reason: str = ""
) -> list[NodeObservation]:
    return [NodeObservation(index, state, report, reason) for index, report in enumerate(reports)]
