"""Keys for ssh: registered ones, those of jobs, and certificates."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainshed.db.engine import read
from trainshed.db.jobs import job_by_id
from trainshed.model.errors import Conflict, NotAllowed, NotFound, TooLarge
from trainshed.model.ssh import AUTHORIZED_KEYS, KEY_NAMES, PUBLIC_KEY, fingerprint
from trainshed.services import users
from trainshed.services.identity import Caller
from trainshed.services.platform import Platform
from trainshed.services.ssh_access import find_entry, find_gate, is_registered
from trainshed.services.ssh_keys import (
    add_ssh_key,
    certify,
    job_ssh_keys,
    list_ssh_keys,
    make_pair,
    remove_ssh_key,
)


def key_of(letter: bytes, comment: str = "") -> str:
    return make_pair(letter * 32, comment)[1]


def test_keys_are_added_once_listed_and_removed(
    platform: Platform, clock: Any, ann: Caller, bob: Caller
) -> None:
    first = add_ssh_key(platform, ann, key_of(b"a", "laptop"))
    clock.now += 1
    second = add_ssh_key(platform, ann, key_of(b"b"), "desk")
    assert add_ssh_key(platform, ann, key_of(b"a", "again")) == first
    assert list_ssh_keys(platform, ann) == [first, second]
    assert [first.name, second.name] == ["laptop", "desk"]
    assert list_ssh_keys(platform, bob) == []
    with pytest.raises(Conflict):
        add_ssh_key(platform, bob, key_of(b"a"))
    with pytest.raises(NotFound):
        remove_ssh_key(platform, bob, "laptop")
    remove_ssh_key(platform, ann, "laptop")
    remove_ssh_key(platform, ann, second.fingerprint)
    assert list_ssh_keys(platform, ann) == []


def test_a_user_has_so_many_keys_and_a_job_none(
    platform: Platform, ann: Caller, make_caller: Callable[..., Caller]
) -> None:
    for number in range(20):
        add_ssh_key(platform, ann, key_of(bytes([number])))
    with pytest.raises(TooLarge):
        add_ssh_key(platform, ann, key_of(b"z"))
    with pytest.raises(NotAllowed):
        add_ssh_key(platform, make_caller("ann", "developer", "red", scopes=["objects:*"]), key_of(b"z"))


def test_a_jobs_keys_are_its_own_and_know_its_owner(
    platform: Platform, ann: Caller, submit: Callable[..., Any]
) -> None:
    jobs = [submit(ann, name=name) for name in ("one", "two")]
    added = add_ssh_key(platform, ann, key_of(b"a", "laptop"))
    with read(platform.engine) as connection:
        rows = [job_by_id(connection, job.id) for job in jobs]
    assert rows[0] is not None and rows[1] is not None
    one, two = job_ssh_keys(platform, rows[0]), job_ssh_keys(platform, rows[1])
    # Written anew each time, with another number against tampering; the key is the same.
    again = job_ssh_keys(platform, rows[0])
    assert (again[PUBLIC_KEY], again[AUTHORIZED_KEYS]) == (one[PUBLIC_KEY], one[AUTHORIZED_KEYS])
    assert set(one) == set(KEY_NAMES)
    assert all(one[name] != two[name] for name in KEY_NAMES)
    own, authority, owners = one[AUTHORIZED_KEYS].splitlines()
    assert own == one[PUBLIC_KEY].strip()
    assert authority.startswith("cert-authority ssh-ed25519 ")
    assert owners == added.key


def test_a_certificate_is_good_for_one_user_and_a_few_minutes(platform: Platform, tmp_path: Path) -> None:
    certificate = certify(platform, "job", "trainshed", key_of(b"a"), "ann")
    (tmp_path / "cert").write_text(certificate)
    told = subprocess.run(
        ["ssh-keygen", "-L", "-f", tmp_path / "cert"], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    assert 'Key ID: "ann"' in told
    assert "Principals: \n                trainshed\n" in told
    assert "permit-pty" in told and "permit-port-forwarding" in told and "agent" not in told
    assert "forever" not in told


def test_the_owner_of_a_key_finds_jobs_in_all_workspaces(
    platform: Platform, admin: Caller, ann: Caller, bob: Caller, submit: Callable[..., Any]
) -> None:
    submit(ann, name="mine")
    key = fingerprint(add_ssh_key(platform, ann, key_of(b"a")).key)
    other = fingerprint(add_ssh_key(platform, bob, key_of(b"b")).key)
    assert is_registered(platform, key)
    assert not is_registered(platform, fingerprint(key_of(b"c")))
    for name in ("mine", "mine.0"):
        with pytest.raises(Conflict, match="does not run yet"):
            find_entry(platform, key, name)
    with pytest.raises(NotFound):
        find_entry(platform, other, "mine")
    with pytest.raises(NotFound):
        find_entry(platform, key, "nothing.1")
    with pytest.raises(NotFound):
        find_gate(platform, bob, "mine")
    users.disable_user(platform, admin, "ann")
    assert not is_registered(platform, key)
    with pytest.raises(NotFound):
        find_entry(platform, key, "mine")
