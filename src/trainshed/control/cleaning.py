"""Clears the machines of what ended attempts left, once all of it is safe in the store."""

from __future__ import annotations

from trainshed.control.context import Control
from trainshed.db.attempts import change_attempt, undiscarded_attempts
from trainshed.db.engine import begin, read

__all__ = ["discard_old_attempts"]

_AT_ONCE = 200


def discard_old_attempts(control: Control) -> int:
    """Remove run folders of attempts that ended long ago; the number of them."""
    before = control.clock() - control.settings.keep_run_folders_hours * 3600
    with read(control.database) as connection:
        attempts = undiscarded_attempts(connection, before, _AT_ONCE)
    done = salvaged = 0
    for attempt in attempts:
        nodes = max(1, len(attempt.placements))
        seen = control.engines[attempt.engine].describe(attempt.job_id, attempt.attempt, nodes)
        if any(node.report is not None and node.report.left_behind for node in seen):
            # The only copy of something lies there: bring it home first, one attempt at a time.
            if not salvaged:
                control.engines[attempt.engine].salvage(attempt.job_id, attempt.attempt)
                salvaged += 1
            continue
        if not control.engines[attempt.engine].discard(attempt.job_id, attempt.attempt):
            continue
        with begin(control.database) as connection:
            change_attempt(connection, attempt, discarded=True)
        done += 1
    return done
