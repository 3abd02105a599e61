"""Public keys as people paste them, and the client's settings."""

from __future__ import annotations

import pytest

from trainshed.model.errors import InvalidInput
from trainshed.model.launch_plan import Peer
from trainshed.model.ssh import fingerprint, parse_public_key, render_client_config

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tr"


def test_a_key_is_read_with_or_without_a_comment() -> None:
    assert parse_public_key(f"  {KEY} me@laptop of mine\n") == (KEY, "me@laptop of mine")
    assert parse_public_key(KEY) == (KEY, "")
    assert fingerprint(KEY).startswith("SHA256:") and len(fingerprint(KEY)) == 50


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ssh-ed25519",
        "ssh-ed25519 AAAA",
        "ssh-ed25519 not-base64!",
        KEY.replace("ssh-ed25519 ", "ssh-rsa "),
        f'command="rm -rf /" {KEY}',
        f"{KEY}\n{KEY}",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "ssh-dss AAAAB3NzaC1kc3MAAACBAO",
        KEY + "A" * 20000,
    ],
)
def test_what_is_no_key_is_refused_with_a_next_step(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_public_key(text)
    assert caught.value.hint


def test_the_clients_settings_know_every_name_and_address() -> None:
    peers = (Peer("127.0.0.2", ("job-0", "worker-0")), Peer("127.0.0.3", ("job-1", "worker-1")))
    assert (
        render_client_config(peers, 29403, "trainshed")
        == """Host job-0
  HostName 127.0.0.2
Host worker-0
  HostName 127.0.0.2
Host 127.0.0.2
  HostName 127.0.0.2
Host job-1
  HostName 127.0.0.3
Host worker-1
  HostName 127.0.0.3
Host 127.0.0.3
  HostName 127.0.0.3
Host *
  Port 29403
  User trainshed
  IdentityFile ~/.ssh/id_ed25519
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""
    )
