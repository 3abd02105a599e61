"""Encryption at rest: secrets are sealed with the platform's master key before they reach the database."""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
import secrets
from pathlib import Path

from sqlalchemy import func, select

from trainshed.db import tables
from trainshed.db.engine import read
from trainshed.durable import sync_folder
from trainshed.model.errors import HostUnfit
from trainshed.services.platform import Platform

__all__ = ["derive", "ensure_key", "seal", "unseal", "write_once"]

_FORMAT = b"\x01"
_KEY_BYTES = 32
_NONCE_BYTES = 12


def seal(platform: Platform, data: bytes, purpose: str) -> bytes:
    """Encrypt data. It can be opened only for the same purpose (such as `job-secrets:<id>`)."""
    # Imported here: most processes never seal anything, and the library is large.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = secrets.token_bytes(_NONCE_BYTES)
    return _FORMAT + nonce + AESGCM(_key(platform)).encrypt(nonce, data, purpose.encode())


def unseal(platform: Platform, sealed: bytes, purpose: str) -> bytes:
    """Decrypt what `seal` made; what was changed or sealed with another key is refused."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    start = len(_FORMAT) + _NONCE_BYTES
    try:
        if not sealed.startswith(_FORMAT):
            raise InvalidTag
        nonce, body = sealed[len(_FORMAT) : start], sealed[start:]
        return AESGCM(_key(platform)).decrypt(nonce, body, purpose.encode())
    except (InvalidTag, ValueError):
        raise HostUnfit(
            "A stored secret cannot be decrypted: it was sealed with another master key, or was damaged.",
            hint=f"Restore {platform.home.master_key} from the backup that belongs to this database.",
            code="wrong_master_key",
        ) from None


def derive(platform: Platform, purpose: str) -> bytes:
    """32 bytes that only the holder of the master key can compute, the same ones every time."""
    return hmac.new(_key(platform), b"derive:" + purpose.encode(), hashlib.sha256).digest()


def ensure_key(platform: Platform) -> None:
    """Make the master key of a new platform. A lost key is not replaced: what it sealed would be lost with it."""
    path = platform.home.master_key
    if path.exists():
        return
    with read(platform.engine) as connection:
        sealed = connection.execute(
            select(
                select(func.count()).select_from(tables.access_keys).scalar_subquery()
                + select(func.count()).select_from(tables.job_secrets).scalar_subquery()
            )
        ).scalar_one()
    if sealed:
        raise HostUnfit(
            f"The master key is missing: {path}.",
            hint="Restore it from a backup; without it stored secrets and access keys cannot be read.",
            code="master_key_missing",
        )
    write_once(path, secrets.token_bytes(_KEY_BYTES))


def write_once(path: Path, data: bytes) -> None:
    """Write a private file as a whole, unless it exists: of two writers at once the first one's stays."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def _key(platform: Platform) -> bytes:
    ensure_key(platform)
    path = platform.home.master_key
    return _read_key(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _read_key(path: Path, _changed_at: int) -> bytes:
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise HostUnfit(
            f"The master key is damaged: {path} has {len(key)} bytes instead of {_KEY_BYTES}.",
            hint="Restore it from a backup.",
            code="wrong_master_key",
        )
    return key
