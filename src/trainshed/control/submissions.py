"""Hands attempts to engines that have a queue of their own, beside the loop: a slow scheduler holds up nobody else."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from trainshed.control.context import Control
from trainshed.control.wait_notes import WaitNotes
from trainshed.db.attempts import AttemptRow
from trainshed.db.engine import read
from trainshed.db.jobs import JobRow
from trainshed.db.users import user_by_id
from trainshed.engines.engine import AttemptLaunch, Wanted
from trainshed.model.errors import TrainshedError
from trainshed.model.flavor import Flavor
from trainshed.model.pools import Pool

__all__ = ["Submissions"]

# So many commands at a time: a controller answers each of them in a thread of its own, and has others to serve.
_AT_ONCE = 4
_DEFAULT_GRACE = 30

log = logging.getLogger("trainshed.control")


class Submissions:
    """The attempts that are being handed over now. The loop leaves them alone until that is done."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._pool = ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="submission")
        self._lock = threading.Lock()
        # None for the moment before it has its place in the queue.
        self._under_way: dict[tuple[str, int], Future[None] | None] = {}

    def is_under_way(self, job_id: str, attempt: int) -> bool:
        """Whether somebody hands this attempt over at this moment: what is seen of it is no truth yet."""
        with self._lock:
            return (job_id, attempt) in self._under_way

    def begin(self, job: JobRow, attempt: AttemptRow, flavor: Flavor, pool: Pool) -> None:
        """Hand an attempt over, unless somebody does. It is written already: after a crash it is handed over again."""
        name = (job.id, attempt.attempt)
        with self._lock:
            if name in self._under_way:
                return
            self._under_way[name] = None
        future = self._pool.submit(self._submit, job, attempt, flavor, pool)
        with self._lock:
            if name in self._under_way:
                self._under_way[name] = future

    def withdraw(self, job_id: str, attempt: int) -> bool:
        """Take an attempt back that nobody wants any more; False when somebody hands it over at this moment.

        Where the scheduler is gone, those that wait for their turn behind hanging commands need not wait to be stopped.
        """
        with self._lock:
            future = self._under_way.get((job_id, attempt))
            if future is None or not future.cancel():
                return (job_id, attempt) not in self._under_way
            del self._under_way[job_id, attempt]
            return True

    def close(self) -> None:
        """Wait for those that have begun; the others are handed over by the next loop."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _submit(self, job: JobRow, attempt: AttemptRow, flavor: Flavor, pool: Pool) -> None:
        try:
            self._control.engines[attempt.engine].submit(self._launch(job, attempt, flavor, pool))
        except TrainshedError as fault:
            # It passes, or somebody mends it; until then the job says why it waits. The next pass tries again.
            notes = WaitNotes(self._control)
            notes.add(job, fault.message, fault.hint)
            notes.write()
        except Exception:
            log.exception("job %s could not be handed over", job.id)
        finally:
            # Nobody is rung: the loop looks soon enough, and where nobody answers it must not look all the time.
            with self._lock:
                self._under_way.pop((job.id, attempt.attempt), None)

    def _launch(self, job: JobRow, attempt: AttemptRow, flavor: Flavor, pool: Pool) -> AttemptLaunch:
        with read(self._control.database) as connection:
            owner = user_by_id(connection, job.owner_id)
        limit, grace = int(job.spec.get("time_limit", 0)), int(job.spec.get("grace", _DEFAULT_GRACE))
        return AttemptLaunch(
            job.id,
            attempt.attempt,
            (),
            pool=pool.name,
            owner=owner.name if owner else "",
            wanted=Wanted(job.nodes, flavor, limit, grace),
        )
