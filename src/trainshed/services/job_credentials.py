"""What a job is given to act with: temporary credentials that die with it, and its owner's secrets."""

from __future__ import annotations

import base64
import json
import uuid
from dataclasses import dataclass

from sqlalchemy import Connection

from trainshed.db import access_keys as db_access_keys
from trainshed.db import jobs as db_jobs
from trainshed.db import secrets as db_secrets
from trainshed.db import tokens as db_tokens
from trainshed.db.engine import begin, read
from trainshed.db.jobs import JobRow
from trainshed.model.errors import Conflict, NotFound
from trainshed.services.access_keys import JOB_SCOPES, KeyPair, issue_access_key
from trainshed.services.identity import TOKEN_PREFIX, hash_secret
from trainshed.services.platform import Platform
from trainshed.services.vault import derive, seal, unseal

__all__ = [
    "JobCredentials",
    "create_job_credentials",
    "grant_job_credentials",
    "job_credentials",
    "load_job_secrets",
    "masked_values",
    "read_job_secrets",
    "revoke_job_credentials",
    "store_job_secrets",
]


@dataclass(frozen=True)
class JobCredentials:
    """A token and an access-key pair of one job."""

    token: str
    access_key: str
    secret_key: str


def create_job_credentials(platform: Platform, job_id: str) -> JobCredentials:
    """Make the job's credentials valid. Called again (after a crash, for a next attempt) they are the same.

    They act in the job's workspace with its owner's rights on data, only as long as the job has not ended.
    """
    credentials = job_credentials(platform, job_id)
    with read(platform.engine) as connection:
        _require_active(connection, job_id)
        if _are_valid(connection, credentials):
            return credentials
    with begin(platform.engine) as connection:
        return grant_job_credentials(platform, connection, _require_active(connection, job_id))


def grant_job_credentials(platform: Platform, connection: Connection, job: JobRow) -> JobCredentials:
    """Make the credentials of a job that has not ended valid, as part of a transaction."""
    credentials = job_credentials(platform, job.id)
    digest = hash_secret(credentials.token)
    if db_tokens.token_by_hash(connection, digest) is None:
        token = db_tokens.TokenRow(
            id=uuid.uuid4().hex,
            hash=digest,
            user_id=job.owner_id,
            workspace_id=job.workspace_id,
            name=f"job {job.name}"[:64],
            scopes=sorted(JOB_SCOPES),
            created_at=platform.clock(),
            job_id=job.id,
        )
        db_tokens.insert_token(connection, token)
    if db_access_keys.access_key(connection, credentials.access_key) is None:
        pair = KeyPair(credentials.access_key, credentials.secret_key)
        name = f"job {job.name}"[:64]
        issue_access_key(platform, connection, job.owner_id, job.workspace_id, name, pair=pair, job_id=job.id)
    return credentials


def revoke_job_credentials(connection: Connection, job_id: str) -> None:
    """Forget the credentials of a job that ends, as part of that transaction."""
    db_tokens.delete_tokens_of_job(connection, job_id)
    db_access_keys.delete_access_keys_of_job(connection, job_id)


def _require_active(connection: Connection, job_id: str) -> JobRow:
    job = db_jobs.job_by_id(connection, job_id)
    if job is None:
        raise NotFound(f"There is no job {job_id}.")
    if job.phase.is_terminal:
        raise Conflict(f"The job has ended ({job.phase}); it gets no credentials.")
    return job


def _are_valid(connection: Connection, credentials: JobCredentials) -> bool:
    return (
        db_tokens.token_by_hash(connection, hash_secret(credentials.token)) is not None
        and db_access_keys.access_key(connection, credentials.access_key) is not None
    )


def job_credentials(platform: Platform, job_id: str) -> JobCredentials:
    """The credentials that a job has or would have, valid or not.

    They are computed from the master key: a control loop that died between making them and handing them
    to the runner hands over the same ones when it comes back.
    """
    token = base64.urlsafe_b64encode(derive(platform, f"job-token:{job_id}")).decode().rstrip("=")
    access = base64.b32encode(derive(platform, f"job-access-key:{job_id}")).decode()[:20]
    secret = base64.b64encode(derive(platform, f"job-secret-key:{job_id}"), b"Aa").decode()[:40]
    return JobCredentials(TOKEN_PREFIX + token, access, secret)


def store_job_secrets(
    platform: Platform, connection: Connection, job_id: str, values: dict[str, str]
) -> None:
    """Keep a job's secret variables, encrypted."""
    if values:
        data = json.dumps(values).encode()
        db_secrets.put_secrets(connection, job_id, seal(platform, data, _purpose(job_id)))


def load_job_secrets(platform: Platform, job_id: str) -> dict[str, str]:
    """A job's secret variables, in the clear: for its runner only."""
    with read(platform.engine) as connection:
        return read_job_secrets(platform, connection, job_id)


def read_job_secrets(platform: Platform, connection: Connection, job_id: str) -> dict[str, str]:
    """The same, as part of a transaction."""
    sealed = db_secrets.get_secrets(connection, job_id)
    if sealed is None:
        return {}
    values: dict[str, str] = json.loads(unseal(platform, sealed, _purpose(job_id)))
    return values


def masked_values(platform: Platform, job_id: str) -> list[str]:
    """What must not be seen in a job's log: its secrets and its own credentials."""
    credentials = job_credentials(platform, job_id)
    return [*load_job_secrets(platform, job_id).values(), credentials.token, credentials.secret_key]


def _purpose(job_id: str) -> str:
    return f"job-secrets:{job_id}"
