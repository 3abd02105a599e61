"""What Slurm says of the platform's jobs, asked no more often than a controller likes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from trainshed.engines.slurm.accounts import own_account
from trainshed.engines.slurm.answers import (
    QUEUE_FORMAT,
    SACCT_FORMAT,
    JobEnd,
    QueuedJob,
    read_accounting,
    read_end,
    read_queue,
)
from trainshed.engines.slurm.batch_script import parse_job_name
from trainshed.engines.slurm.commands import Commands, SlurmRefusal
from trainshed.model.errors import Unavailable
from trainshed.model.pools import Pool

__all__ = ["Board", "Unconfirmed"]

_AT_LEAST_SECONDS = 1.0
# A controller that takes long to answer is asked the more seldom, up to this.
_TIMES_AS_LONG, _AT_MOST_SECONDS = 10.0, 10.0
_AFTER_FAULT_SECONDS = 2.0
# For so long after an answer the controller is taken to be there: not every submission has to ask first.
_PRESENT_SECONDS = 2.0
# Commands wait long for a controller that is away, and for MUNGE; whoever asks for many jobs in turn does not.
_WAIT_SECONDS, _LONGEST_WAIT, _LONGEST_SILENCE, _COMMAND_SECONDS = 1.0, 5.0, 15.0, 75.0
# How far back accounting is asked about a job of unknown age, and when again after it did not answer.
_LOOK_BACK_SECONDS, _WITHOUT_ACCOUNTING_SECONDS = 7 * 86400.0, 60.0


class Unconfirmed(Unavailable):
    """The controller answers; its answer about a job that was just changed is still on its way."""


class Board:
    """The platform's jobs in Slurm, by their names. What it holds is a copy and may be lost at any time."""

    def __init__(
        self,
        commands: Commands,
        platform: str,
        pools: Iterable[Pool],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._commands = commands
        self._platform = platform
        self._own = own_account()
        # Slurm finds the jobs of one account quickly; of several it sends the whole queue in any case.
        self._filter = () if any(pool.run_as == "user" for pool in pools) else ("-u", self._own)
        self._monotonic = monotonic
        self._jobs: dict[str, list[QueuedJob]] = {}
        self._by_number: dict[int, QueuedJob] = {}
        # Jobs that are ours by their script although the site gave them another name.
        self._renamed: set[tuple[int, str]] = set()
        # When something was changed at a job, and when the question was asked whose answer is known.
        self._lock = threading.Lock()
        self._changed: dict[str, float] = {}
        self._answer_of = float("-inf")
        self._doubted: dict[str, float] = {}
        self._asked_at = float("-inf")
        self._begun_at = float("-inf")
        self._took = 0.0
        self._fault: Unavailable | None = Unavailable(
            "Slurm's controller has not answered yet.", code="slurm_unreachable"
        )
        self._asking: threading.Thread | None = None
        self._present_at = float("-inf")
        self._accounting_again_at = float("-inf")
        self.answered_at = monotonic()

    def find(
        self,
        name: str,
        account: str = "",
        *,
        number: int = 0,
        fresh: bool = False,
        is_patient: bool = False,
    ) -> list[QueuedJob]:
        """The jobs of that name that Slurm knows: those that live first, then the latest.

        `account` is whose they are, empty the platform's own: anybody may give that name to a job. `number` is what
        Slurm called it when it took it: a site may have changed its name.
        Raises Unavailable while the controller does not answer, or has not since the job was changed. `fresh` waits
        for an answer to a question asked now; else what was heard last is told while the next answer is on its way.
        A job that was changed hurries the next question, unless the caller is patient: jobs are handed over and begin
        all the time.
        """
        if fresh:
            self._wait(self._begun_at + _LONGEST_WAIT - self._monotonic())
            self._require_answer(0.0)
            self._asked_at = float("-inf")
        is_changed = self._answer_of < self._changed.get(name, float("-inf")) and self._fault is None
        if self._monotonic() - self._asked_at >= self._pause() or (is_changed and not is_patient):
            with self._lock:
                if self._asking is None or not self._asking.is_alive():
                    self._begun_at = self._monotonic()
                    self._asking = threading.Thread(target=self._ask, name="squeue", daemon=True)
                    self._asking.start()
            # Once per question, not once per job that somebody looks at.
            self._wait(self._begun_at + (_LONGEST_WAIT if fresh else _WAIT_SECONDS) - self._monotonic())
        self._require_answer(_LONGEST_WAIT if fresh else _LONGEST_SILENCE)
        if self._fault is not None:
            raise self._fault
        if self._answer_of < self._changed.get(name, float("-inf")):
            raise Unconfirmed("Slurm has not confirmed it yet.", code="slurm_unreachable")
        found = [job for job in self._jobs.get(name, []) if job.user == (account or self._own)]
        if not found and number:
            found = self._find_renamed(name, account or self._own, number)
        return found

    def require_controller(self) -> None:
        """Raise Unavailable unless the controller has answered a moment ago, or answers now."""
        if self._fault is not None or self._monotonic() - self._present_at > _PRESENT_SECONDS:
            self.find("", fresh=True)

    def distrust(self) -> None:
        """A command got no answer: whoever wants to give the next one asks first whether anybody is there."""
        self._present_at = float("-inf")

    def _require_answer(self, seconds: float) -> None:
        """Raise Unavailable when the answer that is on its way has been so for too long.

        Commands wait for most of a minute where MUNGE was killed. Nobody else is to wait as long: the next commands
        would, each of them, and all other jobs with them.
        """
        is_open = self._asking is not None and self._asking.is_alive()
        if is_open and self._monotonic() - self._begun_at >= seconds:
            raise self._fault or Unavailable(
                "Slurm's controller does not answer.",
                hint="It is tried again. `scontrol ping` shows whether it is there; MUNGE must run as well.",
                code="slurm_unreachable",
            )

    def doubt(self, name: str, is_doubtful: bool) -> float:
        """For how many seconds what Slurm says of a job has been doubtful. At the first time it is asked anew."""
        if not is_doubtful:
            self._doubted.pop(name, None)
            return 0.0
        if name not in self._doubted:
            self._doubted[name] = self._monotonic()
            self.note_change(name)
        return self._monotonic() - self._doubted[name]

    def live_jobs(self) -> list[QueuedJob]:
        """The platform's jobs that Slurm has and that have not ended, by the last answer."""
        return [job for jobs in self._jobs.values() for job in jobs if not job.is_over]

    def _find_renamed(self, name: str, account: str, number: int) -> list[QueuedJob]:
        job = self._by_number.get(number)
        if job is None or job.user != account:
            return []
        if (number, name) not in self._renamed:
            try:
                text = self._commands.run("scontrol", "write", "batch_script", str(number), "-").out
            except (SlurmRefusal, Unavailable):
                return []
            if f"#SBATCH --job-name={name}" not in text.splitlines():
                return []
            self._renamed.add((number, name))
        return [job]

    def _wait(self, seconds: float) -> None:
        if self._asking is not None and seconds > 0:
            self._asking.join(seconds)

    def _pause(self) -> float:
        if self._fault is not None:
            return _AFTER_FAULT_SECONDS
        return min(_AT_MOST_SECONDS, max(_AT_LEAST_SECONDS, self._took * _TIMES_AS_LONG))

    def note_change(self, name: str) -> None:
        """Something was just changed at a job: what was asked before does not count for it."""
        with self._lock:
            self._changed[name] = self._monotonic()

    @property
    def silent_for(self) -> float:
        """For how many seconds the controller has not answered."""
        return self._monotonic() - self.answered_at

    def ask_end(self, name: str, account: str = "", since: float = 0.0, *, number: int = 0) -> JobEnd | None:
        """How a job ended; None when nobody knows any more."""
        known = next((job for job in self.find(name, account, number=number) if job.is_over), None)
        if known is not None:
            try:
                text = self._commands.run("scontrol", "show", "job", str(known.id)).out
            except SlurmRefusal:
                text = ""
            # The number may be another's by now.
            if f"JobName={known.name}" in text and (end := read_end(text)) is not None:
                return end
            return JobEnd(known.state, "" if known.reason == "None" else known.reason)
        return self._ask_accounting(name, account or self._own, since)

    def _ask_accounting(self, name: str, account: str, since: float) -> JobEnd | None:
        """What slurmdbd knows of a job that the controller has forgotten; it may hear of ends a while later."""
        if self._monotonic() < self._accounting_again_at or self._commands.find("sacct") is None:
            return None
        begin = datetime.fromtimestamp(since or time.time() - _LOOK_BACK_SECONDS) - timedelta(minutes=5)
        try:
            text = self._commands.run(
                *("sacct", "-n", "-P", "-X", "-D", "-u", account, "-S", begin.strftime("%Y-%m-%dT%H:%M:%S")),
                *(f"--name={name}", "-o", SACCT_FORMAT),
            ).out
        except (SlurmRefusal, Unavailable):
            # Without slurmdbd it says so each time, and what squeue and scontrol say is enough; but it may come back.
            self._accounting_again_at = self._monotonic() + _WITHOUT_ACCOUNTING_SECONDS
            return None
        return read_accounting(text, name)

    def _ask(self) -> None:
        begun = self._monotonic()
        try:
            text = self._commands.run(
                "squeue", "-a", "-h", "-t", "all", *self._filter, "-o", QUEUE_FORMAT
            ).out
        except SlurmRefusal as fault:
            self._fault = Unavailable(f"squeue failed: {fault.said[:300]}", code="slurm_unreachable")
        except Unavailable as fault:
            self._fault = fault
        else:
            found: dict[str, list[QueuedJob]] = {}
            everything = read_queue(text)
            for job in everything:
                if parse_job_name(self._platform, job.name) is not None:
                    found.setdefault(job.name, []).append(job)
            for jobs in found.values():
                jobs.sort(key=lambda job: (job.is_over, job.is_waiting, -job.id if job.is_over else job.id))
            self._jobs, self._fault = found, None
            self._by_number = {job.id: job for job in everything}
            self._answer_of = self._present_at = begun
            self.answered_at = self._monotonic()
        ended = self._monotonic()
        with self._lock:
            self._changed = {name: at for name, at in self._changed.items() if at > self._answer_of}
            self._asked_at = ended
        self._took = ended - begun
