"""The Slurm engine: every attempt is one job of the cluster, every node of it one runner started by srun.

What is known of an attempt lies in its folder (the submission, and a mirror of each node's run folder, which the
nodes fill over HTTP) and in Slurm; nothing that matters is kept in memory. A job is found again by its name, never by
its number: a controller that is killed may lose a job that it has acknowledged and give its number to another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from trainshed.engines.engine import Allocation, AttemptLaunch, NodeObservation, RemoteStart, StopOutcome
from trainshed.engines.slurm.accounts import find_account
from trainshed.engines.slurm.answers import JobEnd, QueuedJob, read_allocation
from trainshed.engines.slurm.attempt_folder import AttemptFolder, AttemptFolders, Submission
from trainshed.engines.slurm.bad_nodes import BadNodes
from trainshed.engines.slurm.batch_script import job_name, parse_job_name, render_batch_script
from trainshed.engines.slurm.board import Board, Unconfirmed
from trainshed.engines.slurm.commands import Commands, SlurmRefusal
from trainshed.engines.slurm.machines import Machines
from trainshed.engines.slurm.observation import (
    NodeSight,
    has_begun,
    is_doubtful,
    is_plain_end,
    observe,
    observe_without_slurm,
    to_be_ended,
)
from trainshed.engines.slurm.reasons import Words, explain_end, explain_refusal
from trainshed.engines.slurm.sight import require_sight
from trainshed.engines.slurm.waiting import WaitingAttempts
from trainshed.model.attempt import Ending, NodeReport
from trainshed.model.errors import NotAllowed, Unavailable
from trainshed.model.flavor import Node
from trainshed.model.home import Home, RunFolder
from trainshed.model.pools import Pool, find_pool

__all__ = ["SlurmEngine"]

# So often a job that Slurm took and does not show is handed over again.
_MOST_TRIES = 20
# What is left in Slurm so long after its attempt's end was brought back by a controller that had lost some time.
_LEFT_OVER_SECONDS = 60.0

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
        bring_home: Callable[[RunFolder, str], str] = lambda folder, ending: "",
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
        self._folders = AttemptFolders(home)
        self._waiting = WaitingAttempts()
        bad_nodes = BadNodes(home.run / "slurm-nodes.json")
        self._machines = Machines(self._commands, bad_nodes, clock)

    def capacity(self) -> list[Node]:
        """The machines of all pools; one that belongs to several of them stands there for each."""
        # Where nobody answers, the loop that asks does not wait for it.
        self._board.find("", fresh=True)
        nodes = self._machines.list_all(self._pools)
        self._end_left_overs()
        return nodes

    def submit(self, launch: AttemptLaunch) -> None:
        """Hand the attempt to Slurm, unless Slurm has it. What Slurm refuses for good ends the attempt."""
        folder = AttemptFolder(self._home, launch.job_id, launch.attempt)
        name = job_name(self._platform, launch.job_id, launch.attempt)
        wanted = launch.wanted
        assert wanted is not None, "an attempt for Slurm says what it wants"
        known = folder.read()
        if known is not None:
            if self._clock() - known.submitted_at < known.pause:
                return
            if any(not job.is_over for job in self._find(known, fresh=True)):
                return
        else:
            # Whether the controller is there at all: what is written down below has to be tried.
            self._board.require_controller()
        folder.make(wanted.nodes)
        tries = known.tries + 1 if known else 1
        submission = Submission(name, launch.pool, wanted.nodes, wanted.grace, self._clock(), tries=tries)
        try:
            pool = find_pool(launch.pool, self._pools)
            account = find_account(pool, launch.owner)
            if account:
                require_sight(self._commands)
            start = self._start(launch)
            script = self._render(launch, pool, start)
            submission = replace(submission, account=account)
            if known is not None and known.id and known.tries >= _MOST_TRIES:
                raise SlurmRefusal(f"taken {known.tries} times, never shown: are job names changed there?")
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
        except Unavailable as fault:
            # From now on: a command that was given up after a while may have reached Slurm at its end.
            late = replace(submission, submitted_at=self._clock(), refusal=fault.message, hint=fault.hint)
            folder.write(late)
            self._board.note_change(name)
            self._board.distrust()
            raise
        number = done.out.strip().partition(";")[0]
        folder.write(replace(submission, id=int(number) if number.isdigit() else 0))
        self._board.note_change(name)

    def describe(self, job_id: str, attempt: int, nodes: int) -> list[NodeObservation]:
        """What the mirrors and Slurm say of each node; of an attempt that waits as before, the very same list."""
        folder = self._folders.find(job_id, attempt)
        submission = folder.read()
        if submission is not None:
            known = self._waiting.find(folder, submission, partial(self._find, is_patient=True))
            if known is not None:
                return known
        sights = [folder.sight(index) for index in range(nodes)]
        if all(is_plain_end(sight.report) for sight in sights):
            # They have said all there is: Slurm need not be asked.
            seen = [NodeObservation(index, "ended", sight.report) for index, sight in enumerate(sights)]
        elif submission is None:
            return [
                NodeObservation(index, "ended" if sight.has_ended else "absent", sight.report)
                for index, sight in enumerate(sights)
            ]
        else:
            seen = self._observe(folder, submission, sights)
        if submission is not None and all(node.state == "ended" for node in seen):
            self._learn(folder, submission, [node.report for node in seen])
        return seen

    def cancel(
        self,
        job_id: str,
        attempt: int,
        *,
        reason: str,
        outcome: StopOutcome = "stopped",
    ) -> None:
        """Leave a request to stop in every mirror; what waits in Slurm, or does not obey, is cancelled there."""
        folder = AttemptFolder(self._home, job_id, attempt)
        submission = folder.read()
        if submission is None:
            return
        folder.make(submission.nodes)
        for index in range(submission.nodes):
            folder.ask_to_stop(index, {"reason": reason, "outcome": outcome})
        try:
            jobs = self._find(submission)
        except Unavailable as fault:
            # Runners hear of it without Slurm; what waits there is cancelled at one of the next looks.
            log.info("%s cannot be cancelled in Slurm yet: %s", submission.name, fault)
            return
        for job in jobs:
            if job.is_waiting:
                # By its state as well: one that starts at this very moment is stopped by its runner.
                self._scancel(submission, job, "--state=PENDING")
            elif not job.is_over and folder.has_disobeyed(submission, self._clock()):
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
        for index in range(submission.nodes):
            report = folder.report(index)
            if report is not None and report.ending is not None and not report.left_behind:
                continue
            place = f"run-{job_id[:8]}-{attempt}-{index}-…"
            ending = (report.ending if report else None) or replace(
                explain_end(end, index, place, folder.host(index)), time=self._clock()
            )
            is_new = report is None or report.ending is None
            fault = self._bring_home(folder.node(index), ending.message if is_new else "")
            fresh = report or self._report(job_id, attempt, index, ending)
            # The runner's own last report may come at this very moment: it knows better.
            folder.write_report(
                replace(
                    fresh,
                    stage="ended",
                    ending=ending,
                    ended_at=fresh.ended_at or self._clock(),
                    left_behind=(fault,) if fault else (),
                ),
                unless_ended=True,
            )

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
            self._waiting.forget(submission)
        folder.remove()
        return True

    def dry_run(self, launch: AttemptLaunch) -> str:
        """The batch script that would be handed over; names of secret variables, never their values."""
        pool = find_pool(launch.pool, self._pools)
        start = self._start(launch)
        script = self._render(launch, pool, start)
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
                if f"JobName={job.name}" in text:
                    return read_allocation(text, pool.gres.values())
        return []

    def _render(self, launch: AttemptLaunch, pool: Pool, start: RemoteStart) -> str:
        left_out = self._machines.left_out(pool, launch.wanted.nodes) if launch.wanted else []
        longest, is_warned = self._machines.longest(pool), self._machines.warns(pool)
        return render_batch_script(
            launch, pool, start, self._platform, left_out, longest, is_warned=is_warned
        )

    def _find(
        self, submission: Submission, *, fresh: bool = False, is_patient: bool = False
    ) -> list[QueuedJob]:
        name, account, number = submission.name, submission.account, submission.id
        return self._board.find(name, account, number=number, fresh=fresh, is_patient=is_patient)

    def _ask_end(self, submission: Submission) -> JobEnd | None:
        return self._board.ask_end(
            submission.name, submission.account, submission.submitted_at, number=submission.id
        )

    def _observe(
        self, folder: AttemptFolder, submission: Submission, sights: list[NodeSight]
    ) -> list[NodeObservation]:
        now = self._clock()
        try:
            # Who sent the signal by which a node ended, only Slurm knows, and only if it is asked after that.
            jobs = self._find(submission, is_patient=not any(sight.has_ended for sight in sights))
        except Unavailable as silence:
            fault: Unavailable | None = silence
            if submission.refusal:
                # What Slurm said when it did not take the job tells more than that it says nothing now.
                fault = Unavailable(submission.refusal, hint=submission.hint)
            elif isinstance(silence, Unconfirmed) and now - submission.submitted_at < submission.pause:
                fault = None
            return observe_without_slurm(sights, fault, now=now, silent_for=self._board.silent_for)
        job = self._choose(jobs, folder, submission)
        if job is None and not has_begun(sights):
            if now - submission.submitted_at < submission.pause:
                reason = submission.refusal or "Slurm has not confirmed it yet."
                return [
                    NodeObservation(index, "queued", None, reason, submission.hint)
                    for index in range(len(sights))
                ]
            # Lost by a controller that died, or ended long ago. A second start is refused where the first one began.
            state: Literal["lost", "absent"] = "lost" if self._ask_end(submission) is not None else "absent"
            return [NodeObservation(index, state) for index in range(len(sights))]
        missing_for = self._board.doubt(submission.name, is_doubtful(sights, job))
        for index in to_be_ended(sights, job, now=now, missing_for=missing_for):
            # Its machine is not the job's any more, but it can still bring home what it has.
            words = "Slurm has taken the machine away." if job else "Slurm does not know the job any more."
            folder.ask_to_stop(index, {"reason": words, "outcome": "stopped", "by": "slurm"})
        seen = observe(
            sights,
            job,
            now=now,
            missing_for=missing_for,
            grace=submission.grace,
            recall=lambda report: self._recall(submission, report),
        )
        if len(jobs) == 1 and all(node.state == "queued" for node in seen):
            self._waiting.remember(submission, jobs, seen)
        return seen

    def _recall(self, submission: Submission, report: NodeReport) -> str:
        """How a job ended: by the controller, or by accounting, where there is any, if that knows it no more."""
        if is_plain_end(report):
            return ""
        end = self._ask_end(submission)
        return end.state if end else ""

    def _learn(self, folder: AttemptFolder, submission: Submission, reports: list[NodeReport | None]) -> None:
        def find_job() -> QueuedJob | None:
            try:
                return next(iter(self._find(submission)), None)
            except Unavailable:
                return None

        self._machines.learn(folder, submission, reports, find_job)

    def _choose(
        self, jobs: list[QueuedJob], folder: AttemptFolder, submission: Submission
    ) -> QueuedJob | None:
        """Of several jobs of one name the one whose processes run the attempt; no other one may live.

        Two of them come about when a controller takes a job, dies before it has answered, and comes back with it.
        """
        if len(jobs) < 2:
            return jobs[0] if jobs else None
        run = folder.run()
        chosen = next((job for job in jobs if job.id == run), jobs[0])
        for job in jobs:
            if job is not chosen and not job.is_over:
                log.warning("%s is twice in Slurm; %d is cancelled", submission.name, job.id)
                self._scancel(submission, job)
        return chosen

    def _end_left_overs(self) -> None:
        """Cancel jobs in Slurm whose attempts ended here long ago: a controller came back with an old state."""
        for job in self._board.live_jobs():
            found = parse_job_name(self._platform, job.name)
            folder = AttemptFolder(self._home, *found) if found else None
            submission = folder.read() if folder else None
            if folder is None or submission is None:
                continue
            sights = [folder.sight(index) for index in range(submission.nodes)]
            # Ended, or stopped before it began.
            ends = [
                sight.report.ended_at if sight.report and sight.has_ended else sight.asked_at
                for sight in sights
                if sight.has_ended or (sight.asked_at and not has_begun(sights))
            ]
            if len(ends) == submission.nodes and self._clock() - max(ends) > _LEFT_OVER_SECONDS:
                log.warning("%s has ended and is in Slurm still; it is cancelled", job.name)
                self._scancel(submission, job)

    def _scancel(self, submission: Submission, job: QueuedJob, *options: str) -> None:
        # Name and number: a number alone may be another's by now.
        line = ("scancel", *options, f"--name={job.name}", str(job.id))
        try:
            self._commands.run(*line, account=submission.account)
        except SlurmRefusal as fault:
            # It has ended by itself in the meantime; if not, the next look shows it again.
            log.info("%s: %s", submission.name, fault.said)
        except Unavailable as fault:
            log.info("%s cannot be cancelled in Slurm yet: %s", submission.name, fault)
        self._board.note_change(submission.name)

    def _report(self, job_id: str, attempt: int, index: int, ending: Ending) -> NodeReport:
        now = self._clock()
        return NodeReport(
            job_id, attempt, index, 0, "ended", ending=replace(ending, node=index), ended_at=now
        )
