"""Keys for ssh: those of jobs, computed when they are needed, and those that users have registered."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from trainshed.db import ssh_keys as db
from trainshed.db.engine import begin, read
from trainshed.db.jobs import JobRow
from trainshed.db.ssh_keys import SshKeyRow
from trainshed.model.errors import Conflict, InvalidInput, NotFound, TooLarge
from trainshed.model.ssh import (
    AUTHORIZED_KEYS,
    CLIENT_KEY,
    HOST_KEY,
    PUBLIC_KEY,
    fingerprint,
    parse_public_key,
)
from trainshed.services.access import require
from trainshed.services.identity import Caller
from trainshed.services.platform import Platform
from trainshed.services.vault import derive

__all__ = [
    "SshKeyView",
    "add_ssh_key",
    "certify",
    "host_key_of",
    "job_ssh_keys",
    "list_ssh_keys",
    "make_pair",
    "port_key",
    "remove_ssh_key",
]

_MOST_KEYS = 20
_CERTIFICATE_SECONDS = 300
# A certificate is good from a little before it was made: clocks differ.
_CLOCK_SECONDS = 60


@dataclass(frozen=True)
class SshKeyView:
    """A public key of a user's."""

    fingerprint: str
    name: str
    key: str
    created_at: float


@dataclass(frozen=True)
class _Own:
    workspace_id: str
    owner_id: str


def add_ssh_key(platform: Platform, caller: Caller, text: str, name: str = "") -> SshKeyView:
    """Register a public key of the caller's: it opens the caller's jobs."""
    _require_own(caller)
    key, comment = parse_public_key(text)
    name = name.strip() or comment or "key"
    if len(name) > 64 or not name.isprintable():
        raise InvalidInput("A key's name is 1 to 64 characters on one line.", where="name")
    row = SshKeyRow(
        id=secrets.token_hex(16),
        user_id=caller.user_id,
        fingerprint=fingerprint(key),
        name=name,
        key=key,
        created_at=platform.clock(),
    )
    with begin(platform.engine) as connection:
        known = db.ssh_key_by_fingerprint(connection, row.fingerprint)
        if known is not None:
            if known.user_id != caller.user_id:
                raise Conflict(
                    "This key is registered by another user.",
                    hint="A key opens its owner's jobs only: make one of your own with ssh-keygen.",
                    code="ssh_key_taken",
                )
            return _view(known)
        if len(db.ssh_keys_of_user(connection, caller.user_id)) >= _MOST_KEYS:
            raise TooLarge(f"A user has at most {_MOST_KEYS} keys for ssh.", hint="Remove one first.")
        db.insert_ssh_key(connection, row)
    return _view(row)


def list_ssh_keys(platform: Platform, caller: Caller) -> list[SshKeyView]:
    """The caller's keys, oldest first."""
    _require_own(caller)
    with read(platform.engine) as connection:
        return [_view(row) for row in db.ssh_keys_of_user(connection, caller.user_id)]


def remove_ssh_key(platform: Platform, caller: Caller, ref: str) -> None:
    """Remove a key of the caller's, by its fingerprint or its name. Jobs that run already keep knowing it."""
    _require_own(caller)
    with begin(platform.engine) as connection:
        rows = db.ssh_keys_of_user(connection, caller.user_id)
        found = [row for row in rows if ref in (row.fingerprint, row.name)]
        if len(found) != 1:
            raise NotFound(
                f"{'Several keys are' if found else 'No key is'} called '{ref[:80]}'.",
                hint="`trainshed ssh-keys list` shows their fingerprints.",
            )
        db.delete_ssh_key(connection, found[0].id)


def job_ssh_keys(platform: Platform, job: JobRow) -> dict[str, str]:
    """A job's keys, by their names among its secrets. Its own are computed from the master key, so nothing is
    stored: all nodes and attempts get the same ones, whenever they are started."""
    private, public = make_pair(derive(platform, f"ssh-client:{job.id}"), f"job {job.id}")
    host, _ = make_pair(derive(platform, f"ssh-host:{job.id}"), f"job {job.id}")
    _, authority = make_pair(derive(platform, f"ssh-authority:{job.id}"), "platform")
    with read(platform.engine) as connection:
        owners = [row.key for row in db.ssh_keys_of_user(connection, job.owner_id)]
    lines = [public, f"cert-authority {authority}", *owners]
    return {
        CLIENT_KEY: private,
        PUBLIC_KEY: f"{public}\n",
        HOST_KEY: host,
        AUTHORIZED_KEYS: "\n".join(lines) + "\n",
    }


def host_key_of(platform: Platform, job_id: str) -> str:
    """The public key by which a job's nodes prove who they are."""
    return make_pair(derive(platform, f"ssh-host:{job_id}"), "")[1]


def port_key(platform: Platform) -> str:
    """The private key by which the platform's own ssh port proves who it is."""
    return make_pair(derive(platform, "ssh-port"), "trainshed")[0]


def certify(platform: Platform, job_id: str, user: str, key: str, who: str) -> str:
    """A certificate by which the holder of a public key may enter a job in the next minutes."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        SSHCertificateBuilder,
        SSHCertificateType,
        load_ssh_public_key,
    )

    now = int(platform.clock())
    try:
        public = load_ssh_public_key(key.encode())
        builder = SSHCertificateBuilder().public_key(public)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        raise InvalidInput("A certificate cannot be made for this kind of key.", code="ssh_key") from None
    signed = (
        builder.type(SSHCertificateType.USER)
        .serial(secrets.randbits(63))
        .key_id(who.encode())
        .valid_principals([user.encode()])
        .valid_after(now - _CLOCK_SECONDS)
        .valid_before(now + _CERTIFICATE_SECONDS)
        .add_extension(b"permit-port-forwarding", b"")
        .add_extension(b"permit-pty", b"")
        .sign(Ed25519PrivateKey.from_private_bytes(derive(platform, f"ssh-authority:{job_id}")))
    )
    return signed.public_bytes().decode()


def make_pair(seed: bytes, comment: str) -> tuple[str, str]:
    """An Ed25519 pair from its 32 secret bytes: the private half, the public half with a comment."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.from_private_bytes(seed)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return private, f"{public} {comment}".rstrip()


def _view(row: SshKeyRow) -> SshKeyView:
    return SshKeyView(row.fingerprint, row.name, row.key, row.created_at)


def _require_own(caller: Caller) -> None:
    require(caller, "key.manage", _Own(caller.workspace_id, caller.user_id))
