"""Public keys for ssh that users have registered."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from trainshed.db import tables
from trainshed.db.engine import is_text
from trainshed.db.row import from_row, to_values

__all__ = [
    "SshKeyRow",
    "delete_ssh_key",
    "insert_ssh_key",
    "ssh_key_by_fingerprint",
    "ssh_keys_of_user",
]


@dataclass(frozen=True)
class SshKeyRow:
    """A public key: whose it is, and its text without a comment."""

    id: str
    user_id: str
    fingerprint: str
    name: str
    key: str
    created_at: float


def insert_ssh_key(connection: Connection, row: SshKeyRow) -> None:
    """Store a new key."""
    connection.execute(insert(tables.ssh_keys).values(**to_values(row)))


def ssh_keys_of_user(connection: Connection, user_id: str) -> list[SshKeyRow]:
    """A user's keys, oldest first."""
    keys = tables.ssh_keys
    query = select(keys).where(keys.c.user_id == user_id).order_by(keys.c.created_at, keys.c.id)
    return [from_row(SshKeyRow, row) for row in connection.execute(query)]


def ssh_key_by_fingerprint(connection: Connection, fingerprint: str) -> SshKeyRow | None:
    """The key with that fingerprint, whoever's it is."""
    if not is_text(fingerprint):
        return None
    keys = tables.ssh_keys
    row = connection.execute(select(keys).where(keys.c.fingerprint == fingerprint)).first()
    return None if row is None else from_row(SshKeyRow, row)


def delete_ssh_key(connection: Connection, key_id: str) -> None:
    """Remove a key."""
    connection.execute(delete(tables.ssh_keys).where(tables.ssh_keys.c.id == key_id))
