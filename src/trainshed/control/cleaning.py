"""Clears the machines of what ended attempts left, once all of it is safe in the store."""

from __future__ import annotations

from trainshed.control.context import Control
from trainshed.db.attempts import change_attempt, undiscarded_attempts
from trainshed.db.engine import begin, read
from trainshed.model.attempt import NodeReport
from trainshed.model.launch_plan import from_json

__all__ = ["discard_old_attempts"]

_AT_ONCE = 50


def discard_old_attempts(control: Control) -> int:
    """Remove run folders of attempts that ended long ago; the number of them."""
    before = control.clock() - control.settings.keep_run_folders_hours * 3600
    with read(control.database) as connection:
        attempts = undiscarded_attempts(connection, before, _AT_ONCE)
    done = 0
    for attempt in attempts:
        reports = [from_json(NodeReport, report) for report in attempt.reports if report]
        if any(report.left_behind for report in reports):
            # The only copy of something lies there: try to bring it home first, keep the folder until then.
            control.engines[attempt.engine].salvage(attempt.job_id, attempt.attempt)
            continue
        control.engines[attempt.engine].discard(attempt.job_id, attempt.attempt)
        with begin(control.database) as connection:
            change_attempt(connection, attempt, discarded=True)
        done += 1
    return done
