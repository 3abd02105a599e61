"""A lease, so that of several processes one leads, and a counter that fences off the ones before it."""

from __future__ import annotations

from sqlalchemy import Connection, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from trainshed.db import tables

__all__ = ["acquire_lease", "holds_lease", "release_lease", "renew_lease"]


def acquire_lease(connection: Connection, name: str, holder: str, now: float, seconds: float) -> int | None:
    """Take the lease when it is free, has run out or is the holder's own; its fence, or None.

    The fence grows by one with every acquisition: who holds a smaller one leads no longer.
    """
    leases = tables.leases
    fence = connection.execute(select(leases.c.fence).where(leases.c.name == name)).scalar()
    if fence is None:
        try:
            with connection.begin_nested():
                connection.execute(
                    insert(leases).values(name=name, holder=holder, fence=1, expires_at=now + seconds)
                )
        except IntegrityError:
            return None
        return 1
    done = connection.execute(
        update(leases)
        .where(
            leases.c.name == name,
            leases.c.fence == fence,
            or_(leases.c.expires_at <= now, leases.c.holder == holder),
        )
        .values(holder=holder, fence=fence + 1, expires_at=now + seconds)
    )
    return fence + 1 if done.rowcount == 1 else None


def renew_lease(
    connection: Connection, name: str, holder: str, fence: int, now: float, seconds: float
) -> bool:
    """Hold the lease for longer; False when another has taken it."""
    leases = tables.leases
    done = connection.execute(
        update(leases)
        .where(leases.c.name == name, leases.c.holder == holder, leases.c.fence == fence)
        .values(expires_at=now + seconds)
    )
    return done.rowcount == 1


def holds_lease(connection: Connection, name: str, holder: str, fence: int) -> bool:
    """Whether the lease is still the holder's; inside a transaction it stays so until the commit.

    The row is locked (PostgreSQL) or the whole database is (SQLite), so that nobody can take the lease
    between this question and the write that depends on it.
    """
    leases = tables.leases
    query = select(leases.c.fence).where(
        leases.c.name == name, leases.c.holder == holder, leases.c.fence == fence
    )
    return connection.execute(query.with_for_update()).first() is not None


def release_lease(connection: Connection, name: str, holder: str, fence: int) -> None:
    """Give the lease back, so that the next one need not wait; the fence is kept."""
    leases = tables.leases
    connection.execute(
        update(leases)
        .where(leases.c.name == name, leases.c.holder == holder, leases.c.fence == fence)
        .values(expires_at=0.0, holder="")
    )
