"""How Slurm's commands are run: as whom, with which variables, and what their faults mean."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainshed.engines.slurm.commands import Commands, SlurmRefusal
from trainshed.model.errors import Unavailable


def _program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """A platform that is not root's, with a sudo that shows how it was called."""
    monkeypatch.setattr("os.geteuid", lambda: 4242)
    _program(tmp_path, "sbatch", 'echo "sbatch: error: no such thing" >&2; exit 1')
    _program(
        tmp_path,
        "sudo",
        f'printf "%s " "$@" > {tmp_path}/called; env > {tmp_path}/variables; cat; . {tmp_path}/say',
    )
    (tmp_path / "say").write_text("exit 0")
    return Commands({"PATH": f"{tmp_path}:/usr/bin:/bin", "SECRET_OF_THE_PLATFORM": "x", "LANG": "C"})


def test_another_account_is_reached_by_exactly_what_the_rule_allows(site: Commands, tmp_path: Path) -> None:
    done = site.run("sbatch", "--parsable", given="#!/bin/sh\n", account="daemon", variables={"TOKEN": "t"})
    assert done.out == "#!/bin/sh\n"
    assert (tmp_path / "called").read_text().split() == [
        *("-n", "-u", "daemon", "--", str(tmp_path / "sbatch"), "--parsable")
    ]
    variables = (tmp_path / "variables").read_text()
    assert "TOKEN=t" in variables and "SECRET_OF_THE_PLATFORM" not in variables


@pytest.mark.parametrize(
    "said",
    [
        "sudo: a password is required",
        "sudo: Ein Passwort ist notwendig",
        "Sorry, user svc is not allowed to execute '/usr/bin/sbatch --parsable' as al on login1.",
        "svc is not in the sudoers file.",
    ],
)
def test_a_missing_rule_is_told_apart(site: Commands, tmp_path: Path, said: str) -> None:
    (tmp_path / "say").write_text(f'echo "{said}" >&2; exit 1')
    with pytest.raises(Unavailable, match="may not run sbatch as 'daemon'") as fault:
        site.run("sbatch", "--parsable", account="daemon")
    assert fault.value.code == "no_sudo_rule" and "engine sudoers" in fault.value.hint
    assert "tried again by itself within a minute" in fault.value.hint


def test_a_remark_of_sudo_s_is_no_refusal(site: Commands, tmp_path: Path) -> None:
    words = "sudo: unable to resolve host login1: Name or service not known"
    (tmp_path / "say").write_text(f'echo "{words}" >&2; echo "sbatch: error: invalid partition" >&2; exit 1')
    with pytest.raises(SlurmRefusal) as fault:
        site.run("sbatch", "--parsable", account="daemon")
    assert fault.value.said == "sbatch: error: invalid partition"


def test_without_sudo_or_the_account_it_is_said(site: Commands, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no Unix account 'gone-for-good'"):
        site.run("sbatch", account="gone-for-good")
    (tmp_path / "sudo").unlink()
    site._environment["PATH"] = str(tmp_path)
    with pytest.raises(Unavailable, match="sudo is not installed"):
        site.run("sbatch", account="daemon")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another account without sudo")
def test_root_needs_no_sudo(tmp_path: Path) -> None:
    commands = Commands({"PATH": "/usr/bin:/bin", "HOME": "/root", "USER": "root"})
    said = commands.run(
        "sh", "-c", "id -un; id -G; echo $HOME $USER $TOKEN", account="daemon", variables={"TOKEN": "t"}
    )
    name, groups, rest = said.out.splitlines()
    assert name == "daemon" and "0" not in groups.split()
    assert rest.split()[1:] == ["daemon", "t"] and "/root" not in rest
