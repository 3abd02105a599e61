"""What the check says of accounts. With real accounts and sudo: tests/test_slurm_accounts.py."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from trainshed.daemon.slurm_accounts import (
    examine_accounts,
    know_accounts,
    list_user_names,
    owner_of,
    require_owner,
    sudo_rule_of,
)
from trainshed.engines.slurm.commands import Commands
from trainshed.model.errors import InvalidInput, NotAllowed
from trainshed.model.home import Home
from trainshed.model.pools import Pool
from trainshed.model.settings import Settings


@pytest.fixture
def people(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accounts al and bo, beside those that every machine has."""
    real = pwd.getpwnam

    def find(name: str) -> pwd.struct_passwd:
        number = {"al": 4001, "bo": 4002}.get(name)
        return pwd.struct_passwd((name, "x", number, number, "", "/", "/bin/sh")) if number else real(name)

    monkeypatch.setattr("trainshed.engines.slurm.accounts.pwd.getpwnam", find)
    monkeypatch.setattr("os.geteuid", lambda: 0)


def test_everybody_is_told_who_runs_as_whom(people: None) -> None:
    pool = Pool("gpu", "slurm", run_as="user", accounts={"alice": "al", "anna": "al", "eve": ""})
    known = know_accounts(pool, ["bo", "alice", "daemon"])
    assert known.users == {"al": ["alice", "anna"], "bo": ["bo"]}
    assert set(known.refused) == {"eve", "daemon"}
    found = [(item.level, item.message) for item in examine_accounts(Commands({}), pool, ["bo"])]
    assert ("ok", "jobs of bo run as bo") in found
    assert ("warn", "alice, anna share the account al") in found
    assert any(level == "warn" and "jobs of eve are refused" in message for level, message in found)


def test_one_account_for_all_is_said_to_be_one() -> None:
    (finding,) = examine_accounts(Commands({}), Pool("gpu", "slurm", run_as="service"), ["alice"])
    assert finding.level == "warn" and "the one account" in finding.message
    assert "only the sandbox keeps jobs apart" in finding.fix


def test_a_pool_that_nobody_can_use_is_a_fault(people: None) -> None:
    found = list(examine_accounts(Commands({}), Pool("gpu", "slurm", run_as="user"), []))
    assert [item.level for item in found if item.fix] == ["bad"]


def test_the_rule_names_those_who_are_known_and_the_groups(people: None) -> None:
    pools = (
        Pool("gpu", "slurm", run_as="user", accounts={"alice": "al"}),
        Pool("own", "slurm", run_as="service"),
    )
    rule = sudo_rule_of(Settings(pools=pools), ["bo", "nobody-knows-me"], "trainshed")
    assert "trainshed ALL = (al, bo) NOPASSWD" in rule
    # By a group those of the same name are allowed once and for all.
    grouped = (Pool("gpu", "slurm", run_as="user", accounts={"alice": "al"}, account_group="lab"),)
    rule = sudo_rule_of(Settings(pools=grouped), ["bo"], "trainshed")
    assert "trainshed ALL = (al, %lab) NOPASSWD" in rule
    with pytest.raises(InvalidInput, match="no rule is needed"):
        sudo_rule_of(Settings(pools=pools[1:]), [], "trainshed")
    with pytest.raises(InvalidInput, match="no account"):
        sudo_rule_of(Settings(pools=pools[:1]), [], "al")


def test_a_platform_is_judged_as_its_owner_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    require_owner(home)
    require_owner(Home(tmp_path / "not-yet"))
    assert list_user_names(home, Settings()) == []
    monkeypatch.setattr("trainshed.daemon.slurm_accounts.own_account", lambda: "somebody-else")
    owner = pwd.getpwuid(os.stat(tmp_path).st_uid).pw_name
    assert owner_of(home) == owner
    with pytest.raises(NotAllowed, match=f"is {owner}'s") as refused:
        require_owner(home)
    assert f"sudo -u {owner}" in refused.value.hint
