"""What the platform tidies up by itself, now and then."""

from __future__ import annotations

from trainshed.db.engine import begin
from trainshed.db.sessions import forget_expired
from trainshed.db.tokens import delete_expired_tokens
from trainshed.services.code import remove_abandoned_code
from trainshed.services.jobs import purge_deleted_jobs
from trainshed.services.platform import Platform

__all__ = ["tidy_up"]

# An expired token is remembered for a while: "it has expired" helps more than "it is not known".
_REMEMBER_SECONDS = 30 * 86400.0


def tidy_up(platform: Platform) -> None:
    """Remove the rest of deleted jobs, code that nobody uses, and expired sessions, links and tokens.

    Every part can be repeated at any time, by several processes at once.
    """
    purge_deleted_jobs(platform)
    remove_abandoned_code(platform)
    now = platform.clock()
    with begin(platform.engine) as connection:
        forget_expired(connection, now)
        delete_expired_tokens(connection, now - _REMEMBER_SECONDS)
