"""Holding a job open after its training has ended, so that its users can still look around in it."""

from __future__ import annotations

from sqlalchemy import Connection

from trainshed.db import jobs as db
from trainshed.db.attempts import attempts_of
from trainshed.db.engine import begin, read
from trainshed.db.events import add_event
from trainshed.db.jobs import JobRow
from trainshed.model.errors import Conflict, InvalidInput, Unavailable
from trainshed.model.job_spec import render_duration
from trainshed.services.access import require
from trainshed.services.identity import Caller
from trainshed.services.job_view import JobView, view_job
from trainshed.services.platform import Platform

__all__ = ["LONGEST_HOLD", "hold_job"]

LONGEST_HOLD = 7 * 86400
_TRIALS = 20


def hold_job(platform: Platform, caller: Caller, ref: str, seconds: int) -> JobView:
    """Hold a job open for so many seconds from now, or from when its training ends."""
    if not 0 <= seconds <= LONGEST_HOLD:
        raise InvalidInput(
            "A job is held open for at most 7 days.", hint="Give 30m, 2h or 1d.", where="seconds"
        )
    require(caller, "job.read")
    with read(platform.engine) as connection:
        found = db.find_job(connection, caller.workspace_id, ref)
    require(caller, "job.stop", found)
    if found.spec.get("dialect") != "apulis":
        raise Conflict(
            f"'{found.name}' is not held open: it ends when its processes end.",
            hint="Jobs of the dialect apulis are, when only `sleep` is left of their command.",
            code="not_holdable",
        )
    for _ in range(_TRIALS):
        with begin(platform.engine) as connection:
            row = db.job_by_id(connection, found.id)
            if row is None or row.phase.is_terminal:
                raise Conflict(
                    f"'{found.name}' has ended.", hint="Run it again: `trainshed rerun`.", code="job_ended"
                )
            held_since = max(
                (report.get("held_since", 0.0) for report in _latest_reports(connection, row)), default=0.0
            )
            now = platform.clock()
            hold = seconds + (max(0, int(now - held_since)) if held_since else 0)
            changed = db.change_job(connection, row, spec={**row.spec, "hold": hold})
            if changed is None:
                continue
            add_event(
                connection,
                row.id,
                now,
                "info",
                "platform",
                f"{caller.user_name} holds the job open for {render_duration(seconds)}."
                if seconds
                else f"{caller.user_name} lets the job go once its training has ended.",
            )
        platform.ring()
        with read(platform.engine) as connection:
            return view_job(platform, connection, changed)
    raise Unavailable("The job changes too quickly.", hint="Try again.")


def _latest_reports(connection: Connection, row: JobRow) -> list[dict[str, float]]:
    attempts = attempts_of(connection, row.id)
    return [report for report in attempts[-1].reports if report] if attempts else []
