"""The control loop: load what is active, decide, apply; then sleep until the doorbell rings."""

from __future__ import annotations

import logging
import socket
import threading
import time

from trainshed.control.active_attempts import ActiveAttempts
from trainshed.control.active_jobs import ActiveJobs
from trainshed.control.admission import admit
from trainshed.control.cleaning import discard_old_attempts
from trainshed.control.context import Control
from trainshed.control.creation import Creation
from trainshed.control.queue_view import QueueView, load_queue
from trainshed.control.submissions import Submissions
from trainshed.control.wait_notes import WaitNotes
from trainshed.control.watching import watch_job
from trainshed.db.engine import begin, read
from trainshed.db.lease import acquire_lease, release_lease, renew_lease
from trainshed.db.nodes import replace_nodes
from trainshed.model.errors import TrainshedError
from trainshed.model.phase import Phase
from trainshed.runner.doorbell import Doorbell

__all__ = ["ControlLoop", "run_loop"]

_LEASE = "control"
_LEASE_SECONDS = 15.0
# How long the loop sleeps when nobody rings: with attempts under way, and without.
_BUSY_SLEEP = 0.5
_IDLE_SLEEP = 2.0
# A pass is followed by a rest of half its length, rung or not: what rings meanwhile is one pass, not many.
_REST_SHARE, _LONGEST_REST = 0.5, 0.1
_CAPACITY_EVERY = 30.0
# After one that could not tell.
_CAPACITY_AGAIN = 5.0
_CLEAN_EVERY = 60.0
_TIDY_EVERY = 1800.0

log = logging.getLogger("trainshed.control")


class ControlLoop:
    """One pass over all active jobs at a time."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._doorbell = Doorbell(control.home.doorbell)
        self._active = ActiveJobs()
        self._attempts = ActiveAttempts()
        self._notes = WaitNotes(control)
        self._creation = Creation(control)
        self._submissions = Submissions(control)
        self._next_capacity = 0.0
        self._next_cleaning = time.monotonic() + 5
        self._next_tidying = time.monotonic() + 30

    def run(self, stop: threading.Event) -> None:
        """Lead until told to stop. A second loop on the same database waits for its turn."""
        holder = f"{socket.gethostname()}:{self._control.home.path}"
        fence: int | None = None
        renewed = 0.0
        while not stop.is_set():
            now = time.monotonic()
            try:
                if fence is None:
                    fence = self._acquire(holder)
                    renewed = now
                elif now - renewed > _LEASE_SECONDS / 3:
                    fence = fence if self._renew(holder, fence) else None
                    renewed = now
                if fence is None:
                    stop.wait(1.0)
                    continue
                active = self.pass_once()
            except TrainshedError as fault:
                log.warning("the pass was given up: %s", fault)
                active = True
                stop.wait(0.5)
            except Exception:
                # One bad pass must not end the loop: what it could not do, the next one sees again.
                log.exception("the pass failed")
                active = True
                stop.wait(1.0)
            stop.wait(min(_LONGEST_REST, _REST_SHARE * (time.monotonic() - now)))
            self._doorbell.wait(_BUSY_SLEEP if active else _IDLE_SLEEP)
        self._creation.close()
        self._submissions.close()
        if fence is not None:
            with begin(self._control.database) as connection:
                release_lease(connection, _LEASE, holder, fence)
        self._doorbell.close()

    def pass_once(self) -> bool:
        """One look at everything that is active; whether there is anything."""
        control = self._control
        now = time.monotonic()
        if now >= self._next_capacity:
            self._next_capacity = now + _CAPACITY_EVERY
            for engine in control.engines.values():
                try:
                    nodes = engine.capacity()
                except TrainshedError as fault:
                    # What is known of its machines stays; the others' jobs go on.
                    log.warning("the machines of %s cannot be listed: %s", engine.name, fault)
                    self._next_capacity = now + _CAPACITY_AGAIN
                    continue
                with begin(control.database) as connection:
                    replace_nodes(connection, engine.name, nodes)
        queue = self._load()
        if self._watch(queue):
            queue = self._load()
        if queue.waiting or queue.to_hand_over or queue.stranded:
            admit(control, queue, self._submissions)
        if now >= self._next_cleaning:
            discard_old_attempts(control)
            self._next_cleaning = now + _CLEAN_EVERY
        if now >= self._next_tidying:
            control.tidy_up()
            self._next_tidying = now + _TIDY_EVERY
        return bool(queue.jobs)

    def _load(self) -> QueueView:
        control = self._control
        with read(control.database) as connection:
            jobs = self._active.load(connection)
            attempts = self._attempts.load(connection, jobs)
            return load_queue(connection, control.clock(), jobs, control.settings.all_pools, attempts)

    def _watch(self, queue: QueueView) -> bool:
        """Move every job on that is being created or that an engine has; whether the queue looks different now."""
        control, notes, freed = self._control, self._notes, False
        for job in queue.jobs.values():
            try:
                if job.phase is Phase.CREATING:
                    self._creation.advance(job)
                    continue
                attempt = queue.attempts.get(job.id)
                if attempt is None or attempt.engine not in control.engines:
                    continue
                if not job.phase.holds_devices and not queue.is_handed_over(job):
                    continue
                if self._submissions.is_under_way(job.id, attempt.attempt) and not (
                    job.stop_requested and self._submissions.withdraw(job.id, attempt.attempt)
                ):
                    continue
                freed |= watch_job(control, job, attempt, queue, self._submissions, notes)
            except Exception:
                # The fault of one job must not stop the others.
                log.exception("job %s could not be moved on", job.id)
        notes.write()
        notes.forget_all_but(queue.jobs)
        return freed

    def _acquire(self, holder: str) -> int | None:
        with begin(self._control.database) as connection:
            return acquire_lease(connection, _LEASE, holder, self._control.clock(), _LEASE_SECONDS)

    def _renew(self, holder: str, fence: int) -> bool:
        with begin(self._control.database) as connection:
            return renew_lease(connection, _LEASE, holder, fence, self._control.clock(), _LEASE_SECONDS)


def run_loop(control: Control, stop: threading.Event) -> None:
    """Run the control loop until `stop` is set."""
    ControlLoop(control).run(stop)
