"""What a runner on another machine acts with: a token of one attempt of one job, dead at that attempt's end.

Nothing is stored: the token names its attempt and carries a code that only the holder of the master key can
compute. Whether the attempt is still the current one is asked at every use.
"""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass, replace

from trainshed.db.attempts import AttemptRow, attempt_of
from trainshed.db.engine import read
from trainshed.db.jobs import JobRow, job_by_id
from trainshed.model.errors import NotAuthenticated
from trainshed.runner.log_archive import ARCHIVE_BUCKET
from trainshed.services.access_keys import JOB_SCOPES
from trainshed.services.credential_cache import cache_of
from trainshed.services.identity import Caller, RunnerPlaces, authenticate_token, hash_secret, identify
from trainshed.services.platform import Platform
from trainshed.services.vault import derive

__all__ = ["ATTEMPT_PREFIX", "AttemptCaller", "attempt_token", "authenticate_attempt", "authenticate_bearer"]

ATTEMPT_PREFIX = "tsr_"
_LONGEST = 256


@dataclass(frozen=True)
class AttemptCaller:
    """A runner: it acts for one attempt of one job."""

    job: JobRow
    attempt: AttemptRow


def attempt_token(platform: Platform, job_id: str, attempt: int) -> str:
    """The token of an attempt, the same one every time."""
    code = base64.urlsafe_b64encode(derive(platform, f"attempt-token:{job_id}:{attempt}")).decode()
    return f"{ATTEMPT_PREFIX}{job_id}.{attempt}.{code.rstrip('=')}"


def authenticate_attempt(platform: Platform, token: str) -> AttemptCaller:
    """The attempt behind a token; a wrong one, and one whose attempt is over, are refused."""
    job_id, number = _read(platform, token)
    with read(platform.engine) as connection:
        job = job_by_id(connection, job_id)
        attempt = attempt_of(connection, job_id, number)
    if job is None or attempt is None:
        raise _unknown()
    if job.attempt != number or job.phase.is_terminal or job.deleted_at or attempt.state == "ended":
        raise NotAuthenticated(
            f"Attempt {number} of this job is over.",
            hint="Its runner ends by itself.",
            code="attempt_over",
        )
    return AttemptCaller(job, attempt)


def authenticate_bearer(platform: Platform, token: str) -> Caller:
    """The caller behind a token of a user, of a job, or of an attempt's runner."""
    if not token.startswith(ATTEMPT_PREFIX):
        return authenticate_token(platform, token)

    def load() -> Caller:
        job = authenticate_attempt(platform, token).job
        with read(platform.engine) as connection:
            caller = identify(connection, job.owner_id, job.workspace_id, JOB_SCOPES, job.id)
        return replace(
            caller, places=RunnerPlaces(job.code_bucket, job.code_prefix, ARCHIVE_BUCKET, f"{job.id}/")
        )

    return cache_of(platform.engine).find("attempt", hash_secret(token), load)


def _read(platform: Platform, token: str) -> tuple[str, int]:
    """The job and the attempt that a token names, if it is one of ours."""
    if not token.startswith(ATTEMPT_PREFIX) or len(token) > _LONGEST or not token.isascii():
        raise _unknown()
    job_id, _, rest = token.removeprefix(ATTEMPT_PREFIX).partition(".")
    number = rest.partition(".")[0]
    if not job_id or not number.isdecimal() or len(number) > 9:
        raise _unknown()
    if not hmac.compare_digest(token, attempt_token(platform, job_id, int(number))):
        raise _unknown()
    return job_id, int(number)


def _unknown() -> NotAuthenticated:
    return NotAuthenticated(
        "The token is not that of an attempt of this platform.",
        hint="A runner gets its token from the engine that starts it.",
        code="unknown_credential",
    )
