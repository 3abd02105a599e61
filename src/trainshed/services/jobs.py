"""Jobs of a workspace: submit, look, stop, delete, run again, explain."""

from __future__ import annotations

from dataclasses import asdict

from trainshed.db import access_keys as db_access_keys
from trainshed.db import attempts as db_attempts
from trainshed.db import events as db_events
from trainshed.db import jobs as db
from trainshed.db import secrets as db_secrets
from trainshed.db import tokens as db_tokens
from trainshed.db.engine import begin, clean_text, read
from trainshed.db.jobs import JobRow
from trainshed.durable import remove_tree
from trainshed.model.errors import Conflict, InvalidInput, Unavailable, suggest
from trainshed.model.phase import Phase
from trainshed.services.access import require
from trainshed.services.code import release_code
from trainshed.services.explanation import Explanation, explain_job, explain_wait
from trainshed.services.identity import Caller
from trainshed.services.job_view import AttemptView, EventView, JobView, TextMask, view_attempt, view_job
from trainshed.services.platform import Platform
from trainshed.services.submission import dry_run, rerun_job, submit

__all__ = [
    "AttemptView",
    "EventView",
    "Explanation",
    "JobView",
    "attempts",
    "delete_job",
    "dry_run",
    "explain_job",
    "get_job",
    "job_events",
    "list_jobs",
    "purge_deleted_jobs",
    "rerun_job",
    "stop_job",
    "submit",
]

ARCHIVE_BUCKET = ".jobs"
_MOST_JOBS = 1000
_MOST_EVENTS = 5000
_LARGEST_ID = (1 << 63) - 1
_PURGED_AT_ONCE = 1000
# The control loop changes a job a few times per second at most.
_TRIALS = 50


def list_jobs(
    platform: Platform,
    caller: Caller,
    phase: str | None = None,
    limit: int = 50,
    before: str | None = None,
) -> list[JobView]:
    """The workspace's jobs, newest first; `before` is the id of the last job of the page before."""
    require(caller, "job.read")
    wanted = _phase(phase)
    if not 1 <= limit <= _MOST_JOBS:
        raise InvalidInput(f"The limit is 1 to {_MOST_JOBS}.", where="limit")
    with read(platform.engine) as connection:
        rows = db.list_jobs(connection, caller.workspace_id, wanted, limit, before)
        owners: dict[str, str] = {}
        return [view_job(platform, connection, row, owners=owners) for row in rows]


def get_job(platform: Platform, caller: Caller, ref: str) -> JobView:
    """One job, by name, id or the unique beginning of its id."""
    with read(platform.engine) as connection:
        require(caller, "job.read")
        row = db.find_job(connection, caller.workspace_id, ref)
        wait = explain_wait(connection, row, platform.clock(), platform.settings.all_pools)
        return view_job(platform, connection, row, asdict(wait) if wait else None)


def job_events(
    platform: Platform, caller: Caller, ref: str, limit: int = 1000, after_id: int = 0
) -> list[EventView]:
    """A job's story, from behind the event `after_id`."""
    row = _find(platform, caller, ref, "job.read")
    mask = TextMask(platform, row.id)
    with read(platform.engine) as connection:
        after = max(0, min(after_id, _LARGEST_ID))
        events = db_events.events_of(connection, row.id, max(1, min(limit, _MOST_EVENTS)), after)
    return [EventView(e.id, e.time, e.level, e.source, mask.text(e.message)) for e in events]


def attempts(platform: Platform, caller: Caller, ref: str) -> list[AttemptView]:
    """All starts of a job, the first one first."""
    row = _find(platform, caller, ref, "job.read")
    mask = TextMask(platform, row.id)
    with read(platform.engine) as connection:
        return [view_attempt(mask, attempt) for attempt in db_attempts.attempts_of(connection, row.id)]


def stop_job(platform: Platform, caller: Caller, ref: str, reason: str = "") -> JobView:
    """Ask a job to stop; the control loop does it. Asking twice, or after its end, changes nothing."""
    row = _find(platform, caller, ref, "job.stop")
    words = clean_text(reason.strip() or f"Stopped by {caller.user_name}.")[:500]
    for _ in range(_TRIALS):
        with begin(platform.engine) as connection:
            now = db.job_by_id(connection, row.id)
            if now is None or now.phase.is_terminal or now.stop_requested:
                break
            changed = db.change_job(connection, now, stop_requested=True, stop_reason=words)
            if changed is not None:
                db_events.add_event(
                    connection, row.id, platform.clock(), "info", "platform", f"A stop was asked for: {words}"
                )
                break
    else:
        raise Unavailable("The job changes too quickly to be stopped.", hint="Try again.")
    platform.ring()
    return get_job(platform, caller, row.id)


def delete_job(platform: Platform, caller: Caller, ref: str) -> None:
    """Remove an ended job with its logs, metrics and code. What it wrote to its outputs stays."""
    row = _find(platform, caller, ref, "job.delete")
    if not row.phase.is_terminal:
        raise Conflict(
            f"'{row.name}' is {row.phase}; only an ended job can be deleted.",
            hint=f"Stop it first: `trainshed stop {row.name}`.",
            code="job_not_ended",
        )
    with begin(platform.engine) as connection:
        if db.change_job(connection, row, deleted_at=platform.clock()) is None:
            raise Conflict("The job was changed at this very moment.", hint="Try again.")
        db_secrets.delete_secrets(connection, row.id)
        db_tokens.delete_tokens_of_job(connection, row.id)
        db_access_keys.delete_access_keys_of_job(connection, row.id)
    purge_deleted_jobs(platform)


def purge_deleted_jobs(platform: Platform) -> int:
    """Remove the data of deleted jobs, also of those whose removal was cut short by a crash."""
    done = 0
    with read(platform.engine) as connection:
        rows = db.deleted_jobs(connection, _PURGED_AT_ONCE)
    for row in rows:
        if not _remove_run_folders(platform, row):
            continue
        platform.store.delete_prefix(ARCHIVE_BUCKET, f"{row.id}/attempt-")
        platform.store.delete_prefix(ARCHIVE_BUCKET, f"{row.id}/checkpoints/")
        release_code(platform, row.workspace_id, row.code_bucket, row.code_prefix)
        with begin(platform.engine) as connection:
            db.forget_job(connection, row.id)
        done += 1
    return done


def _remove_run_folders(platform: Platform, row: JobRow) -> bool:
    """Whether nothing of the job is left on this machine."""
    folder = platform.home.jobs / row.id
    if folder.is_dir() and not folder.is_symlink():
        remove_tree(folder)
    return not folder.exists()


def _find(platform: Platform, caller: Caller, ref: str, action: str) -> JobRow:
    require(caller, "job.read")
    with read(platform.engine) as connection:
        row = db.find_job(connection, caller.workspace_id, ref)
    require(caller, action, row)
    return row


def _phase(text: str | None) -> Phase | None:
    if not text:
        return None
    known = {phase.value.lower(): phase for phase in Phase}
    if text.lower() not in known:
        raise InvalidInput(
            f"There is no phase '{text[:80]}'.", hint=suggest(text, [p.value for p in Phase]), where="phase"
        )
    return known[text.lower()]
