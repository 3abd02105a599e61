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

__all__ = ["Board"]

_AT_LEAST_SECONDS = 0.5
# A controller that takes long to answer is asked the more seldom, up to this.
_TIMES_AS_LONG, _AT_MOST_SECONDS = 10.0, 10.0
_AFTER_FAULT_SECONDS = 2.0
# Commands wait long for a controller that is away; whoever asks for many jobs in turn does not.
_WAIT_SECONDS, _LONGEST_WAIT = 1.0, 40.0
# How far back accounting is asked about a job of unknown age, and when again after it did not answer.
_LOOK_BACK_SECONDS, _WITHOUT_ACCOUNTING_SECONDS = 7 * 86400.0, 60.0


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
        self._asked_at = float("-inf")
        self._took = 0.0
        self._fault: Unavailable | None = Unavailable(
            "Slurm's controller has not answered yet.", code="slurm_unreachable"
        )
        self._asking: threading.Thread | None = None
        self._accounting_again_at = float("-inf")
        self.answered_at = monotonic()

    def find(self, name: str, account: str = "", *, fresh: bool = False) -> list[QueuedJob]:
        """The jobs of that name that Slurm knows: those that live first, then the latest.

        `account` is whose they are, empty the platform's own: anybody may give that name to a job.
        Raises Unavailable while the controller does not answer. `fresh` waits for an answer to a question asked now;
        else what was heard last is told while the next answer is on its way.
        """
        if fresh:
            self._wait(_LONGEST_WAIT)
            self.ask_again()
        if self._monotonic() - self._asked_at >= self._pause():
            if self._asking is None or not self._asking.is_alive():
                self._asking = threading.Thread(target=self._ask, name="squeue", daemon=True)
                self._asking.start()
            self._wait(_LONGEST_WAIT if fresh else _WAIT_SECONDS)
        if self._fault is not None:
            raise self._fault
        return [job for job in self._jobs.get(name, []) if job.user == (account or self._own)]

    def _wait(self, seconds: float) -> None:
        if self._asking is not None:
            self._asking.join(seconds)

    def _pause(self) -> float:
        if self._fault is not None:
            return _AFTER_FAULT_SECONDS
        return min(_AT_MOST_SECONDS, max(_AT_LEAST_SECONDS, self._took * _TIMES_AS_LONG))

    def ask_again(self) -> None:
        """Forget what is known: something was just changed."""
        self._asked_at = float("-inf")

    @property
    def silent_for(self) -> float:
        """For how many seconds the controller has not answered."""
        return self._monotonic() - self.answered_at

    def ask_end(self, name: str, account: str = "", since: float = 0.0) -> JobEnd | None:
        """How a job ended; None when nobody knows any more."""
        known = next((job for job in self.find(name, account) if job.is_over), None)
        if known is not None:
            try:
                text = self._commands.run("scontrol", "show", "job", str(known.id)).out
            except SlurmRefusal:
                text = ""
            # The number may be another's by now.
            if f"JobName={name}" in text and (end := read_end(text)) is not None:
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
            text = self._commands.run("squeue", "-h", "-t", "all", *self._filter, "-o", QUEUE_FORMAT).out
        except SlurmRefusal as fault:
            self._fault = Unavailable(f"squeue failed: {fault.said[:300]}", code="slurm_unreachable")
        except Unavailable as fault:
            self._fault = fault
        else:
            found: dict[str, list[QueuedJob]] = {}
            for job in read_queue(text):
                if parse_job_name(self._platform, job.name) is not None:
                    found.setdefault(job.name, []).append(job)
            for jobs in found.values():
                jobs.sort(key=lambda job: (job.is_over, job.is_waiting, -job.id if job.is_over else job.id))
            self._jobs, self._fault = found, None
            self.answered_at = self._monotonic()
        self._asked_at = self._monotonic()
        self._took = self._asked_at - begun
