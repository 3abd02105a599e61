"""What the platform tidies up by itself, now and then."""

from __future__ import annotations

from trainshed.db.engine import begin
from trainshed.db.sessions import forget_expired
from trainshed.db.tokens import delete_expired_tokens
from trainshed.model.errors import NotFound
from trainshed.services.code import remove_abandoned_code
from trainshed.services.jobs import purge_deleted_jobs
from trainshed.services.platform import Platform
from trainshed.store.staged_tree import TreeCache, TreeFacts, measure

__all__ = ["sweep_input_cache", "tidy_up"]

# An expired token is remembered for a while: "it has expired" helps more than "it is not known".
_REMEMBER_SECONDS = 30 * 86400.0


def sweep_input_cache(platform: Platform) -> int:
    """Remove inputs that were not used for long, or are not the same in the store any more: the bytes of a
    removed object must not live on in a cache. The number of them."""

    def is_current(facts: TreeFacts) -> bool:
        try:
            return measure(platform.store, facts.bucket, facts.key).digest == facts.digest
        except NotFound:
            return False

    return TreeCache(platform.home.input_cache).sweep(
        unused_for=platform.settings.input_cache_hours * 3600.0,
        largest=platform.settings.input_cache_gb << 30,
        is_current=is_current,
    )


def tidy_up(platform: Platform) -> None:
    """Remove cached inputs, the rest of deleted jobs, code that nobody uses, and expired sessions, links and tokens.

    Every part can be repeated at any time, by several processes at once.
    """
    purge_deleted_jobs(platform)
    remove_abandoned_code(platform)
    now = platform.clock()
    with begin(platform.engine) as connection:
        forget_expired(connection, now)
        delete_expired_tokens(connection, now - _REMEMBER_SECONDS)
    sweep_input_cache(platform)
