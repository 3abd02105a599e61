"""Whose account is whose. With real accounts: tests/test_slurm_accounts.py."""

from __future__ import annotations

import pwd
from pathlib import Path

import pytest

from trainshed.engines.slurm.accounts import find_account, first_ordinary_uid, own_account
from trainshed.model.errors import NotAllowed
from trainshed.model.pools import Pool


def _person(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    entry = pwd.struct_passwd(("ann", "x", uid, uid, "", "/home/ann", "/bin/sh"))
    monkeypatch.setattr("trainshed.engines.slurm.accounts.pwd.getpwnam", lambda name: entry)


def test_one_account_for_all_only_when_it_was_chosen() -> None:
    assert find_account(Pool("gpu", "slurm", run_as="service"), "anybody") == ""


@pytest.mark.parametrize(
    ("owner", "accounts", "said"),
    [
        ("eve", {"eve": "no-such-account"}, "knows no 'no-such-account'"),
        ("no-such-account", {}, "knows no 'no-such-account'"),
        ("daemon", {}, "belongs to the system"),
        ("nobody", {}, "belongs to the system"),
        ("ann", {"ann": "bin"}, "belongs to the system"),
        ("root", {}, "has no Unix account"),
        ("ann", {"ann": ""}, "has no Unix account"),
    ],
)
def test_no_job_runs_under_an_account_of_nobody_s(owner: str, accounts: dict[str, str], said: str) -> None:
    with pytest.raises(NotAllowed, match=said) as refused:
        find_account(Pool("gpu", "slurm", run_as="user", accounts=accounts), owner)
    assert refused.value.hint and refused.value.code == "no_account"


def test_the_platform_s_own_account_is_no_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool("gpu", "slurm", run_as="user")
    _person(monkeypatch, 4242)
    assert find_account(pool, "ann") == "ann"
    monkeypatch.setattr("os.geteuid", lambda: 4242)
    with pytest.raises(NotAllowed, match="platform's own"):
        find_account(pool, "ann")


def test_with_a_group_only_its_members_run_by_the_same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    _person(monkeypatch, 4242)
    pool = Pool("gpu", "slurm", run_as="user", account_group="daemon")
    with pytest.raises(NotAllowed, match="not in the Unix group 'daemon'") as refused:
        find_account(pool, "ann")
    assert "usermod -aG daemon ann" in refused.value.hint
    # Whom the settings name needs no group, and a group that is not there has no members.
    named = Pool("gpu", "slurm", run_as="user", accounts={"ann": "ann"}, account_group="daemon")
    assert find_account(named, "ann") == "ann"
    with pytest.raises(NotAllowed, match="not in the Unix group"):
        find_account(Pool("gpu", "slurm", run_as="user", account_group="no-such-group"), "ann")


def test_where_ordinary_accounts_begin(tmp_path: Path) -> None:
    file = tmp_path / "login.defs"
    assert first_ordinary_uid(file) == 1000
    file.write_text("# UID_MIN 1\nUID_MIN\t\t  500\n")
    assert first_ordinary_uid(file) == 500
    file.write_text("UID_MIN 0\n")
    assert first_ordinary_uid(file) == 1
    assert own_account()
