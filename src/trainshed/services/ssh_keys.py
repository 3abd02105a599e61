"""Keys for ssh: those of a job, which its nodes use among themselves."""

from __future__ import annotations

from trainshed.db.jobs import JobRow
from trainshed.model.ssh import AUTHORIZED_KEYS, CLIENT_KEY, HOST_KEY, PUBLIC_KEY
from trainshed.services.platform import Platform
from trainshed.services.vault import derive

__all__ = ["host_key_of", "job_ssh_keys", "make_pair"]


def job_ssh_keys(platform: Platform, job: JobRow) -> dict[str, str]:
    """A job's keys, by their names among its secrets. They are computed from the master key, so nothing is stored:
    all nodes and attempts of a job get the same ones, whenever they are started."""
    private, public = make_pair(derive(platform, f"ssh-client:{job.id}"), f"job {job.id}")
    host, _ = make_pair(derive(platform, f"ssh-host:{job.id}"), f"job {job.id}")
    return {
        CLIENT_KEY: private,
        PUBLIC_KEY: f"{public}\n",
        HOST_KEY: host,
        AUTHORIZED_KEYS: f"{public}\n",
    }


def host_key_of(platform: Platform, job_id: str) -> str:
    """The public key by which a job's nodes prove who they are."""
    return make_pair(derive(platform, f"ssh-host:{job_id}"), "")[1]


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
