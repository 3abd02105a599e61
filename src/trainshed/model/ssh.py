"""What of ssh is the same on both sides of the sandbox's wall: names of keys, the client's settings."""

from __future__ import annotations

import binascii
from collections.abc import Sequence

from trainshed.model.errors import InvalidInput
from trainshed.model.launch_plan import Peer

__all__ = [
    "AUTHORIZED_KEYS",
    "CLIENT_KEY",
    "HOST_KEY",
    "KEY_NAMES",
    "PUBLIC_KEY",
    "fingerprint",
    "parse_public_key",
    "render_client_config",
]

# Where a job's keys lie among its secrets; no variable can have such a name.
CLIENT_KEY, PUBLIC_KEY, HOST_KEY, AUTHORIZED_KEYS = (
    "ssh:client_key",
    "ssh:public_key",
    "ssh:host_key",
    "ssh:authorized_keys",
)
KEY_NAMES = (CLIENT_KEY, PUBLIC_KEY, HOST_KEY, AUTHORIZED_KEYS)

_KINDS = (
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)
_LONGEST_KEY = 16384


def render_client_config(peers: Sequence[Peer], port: int, user: str) -> str:
    """The `~/.ssh/config` by which a node reaches the others by their names and addresses, without a question."""
    lines = []
    for peer in peers:
        for name in (*peer.names, peer.address):
            lines += [f"Host {name}", f"  HostName {peer.address}"]
    # Settings of all: the nodes' keys are this job's alone, and nobody else is in its network.
    lines += [
        "Host *",
        f"  Port {port}",
        f"  User {user}",
        "  IdentityFile ~/.ssh/id_ed25519",
        "  StrictHostKeyChecking no",
        "  UserKnownHostsFile /dev/null",
        "  LogLevel ERROR",
    ]
    return "\n".join(lines) + "\n"


def parse_public_key(text: str) -> tuple[str, str]:
    """A public key as people paste it: (kind and data, comment). Options before the key are refused."""
    words = text.split(None, 2)
    if len(text) > _LONGEST_KEY or len(words) < 2 or "\n" in text.strip():
        raise _not_a_key("it is not one line with a kind and a key")
    kind, data = words[0], words[1]
    if kind == "-----BEGIN" or "PRIVATE" in text:
        raise _not_a_key("it is a private key, which must stay with you")
    if kind not in _KINDS:
        raise _not_a_key(f"'{kind[:40]}' is not a kind of key that is known here")
    try:
        raw = binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        raise _not_a_key("it is damaged") from None
    size = int.from_bytes(raw[:4], "big")
    if raw[4 : 4 + size] != kind.encode() or len(raw) < 4 + size + 32:
        raise _not_a_key("it is damaged")
    return f"{kind} {data}", words[2].strip() if len(words) > 2 else ""


def fingerprint(key: str) -> str:
    """The name of a public key, as ssh prints it: SHA256:…"""
    # Only here: every runner loads this module, and none of them needs a hash for it.
    import hashlib

    digest = hashlib.sha256(binascii.a2b_base64(key.split()[1])).digest()
    return "SHA256:" + binascii.b2a_base64(digest, newline=False).decode().rstrip("=")


def _not_a_key(reason: str) -> InvalidInput:
    return InvalidInput(
        f"This is not a public key for ssh: {reason}.",
        hint="Give the content of a file such as ~/.ssh/id_ed25519.pub (made by ssh-keygen).",
        code="ssh_key",
    )
