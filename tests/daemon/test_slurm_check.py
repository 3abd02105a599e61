"""What the check of a cluster finds, on a machine without one. With one: tests/engines/slurm."""

from __future__ import annotations

from pathlib import Path

from trainshed.daemon.slurm_check import examine_slurm
from trainshed.engines.slurm.commands import Commands
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
