"""What the check of a cluster finds, on a machine without one. With one: tests/engines/slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.daemon.slurm_check import check_pools, examine_slurm
from trainshed.engines.slurm.commands import Commands
from trainshed.model.errors import HostUnfit, InvalidInput
from trainshed.model.pools import Pool
from trainshed.model.settings import Settings


def test_missing_commands_are_named_with_their_fix(tmp_path: Path) -> None:
    commands = Commands({"PATH": str(tmp_path)})
    commands._environment["PATH"] = str(tmp_path)
    findings = examine_slurm(Settings(engine="slurm"), commands)
    assert [finding.subject for finding in findings if finding.level == "bad"] == [
        *("sbatch", "squeue", "scontrol", "scancel"),
    ]
    assert all("slurm-client" in finding.fix for finding in findings)


def test_a_controller_that_does_not_answer_is_told(tmp_path: Path) -> None:
    for name in ("sbatch", "squeue", "scontrol", "scancel"):
        program = tmp_path / name
        program.write_text(
            '#!/bin/sh\n[ "$1" = --version ] && exit 0\n'
            "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1\n"
        )
        program.chmod(0o755)
    commands = Commands({"PATH": f"{tmp_path}:/bin"})
    commands._environment["PATH"] = f"{tmp_path}:/bin"
    found = [item for item in examine_slurm(Settings(engine="slurm"), commands) if item.level == "bad"]
    assert [item.subject for item in found] == ["controller"]
    assert "does not answer" in found[0].message and "munge" in found[0].fix


def _cluster_of(folder: Path, answer: str) -> Commands:
    for name in ("sbatch", "squeue", "scontrol", "scancel"):
        (folder / name).write_text(f"#!/bin/sh\n{answer}\n")
        (folder / name).chmod(0o755)
    commands = Commands({"PATH": f"{folder}:/bin"})
    commands._environment["PATH"] = f"{folder}:/bin"
    return commands


def test_a_start_refuses_pools_that_the_cluster_does_not_have(tmp_path: Path) -> None:
    commands = _cluster_of(tmp_path, "echo PartitionName=a100 State=UP; echo PartitionName=v100 State=UP")
    check_pools(Settings(pools=(Pool("gpu", "slurm", "a100,v100"), Pool("any", "slurm"))), commands)
    with pytest.raises(InvalidInput, match="partition 'a10', which the cluster does not have") as refused:
        check_pools(Settings(pools=(Pool("gpu", "slurm", "a10"),)), commands)
    assert "Did you mean 'a100'" in refused.value.hint and "pools.gpu" in str(refused.value.where)


def test_a_start_does_not_wait_for_a_controller_that_is_away(tmp_path: Path) -> None:
    commands = _cluster_of(tmp_path, "echo 'Unable to contact slurm controller' >&2; exit 1")
    check_pools(Settings(pools=(Pool("gpu", "slurm", "a100"),)), commands)


def test_a_start_needs_slurm_s_commands_only_for_pools_in_slurm(tmp_path: Path) -> None:
    commands = Commands({"PATH": str(tmp_path)})
    commands._environment["PATH"] = str(tmp_path)
    check_pools(Settings(), commands)
    with pytest.raises(HostUnfit, match="sbatch is not on this machine"):
        check_pools(Settings(engine="slurm"), commands)
