"""What is known of a pool's machines before Slurm is asked, or when it does not answer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from trainshed.engines.slurm.bad_nodes import BadNodes
from trainshed.engines.slurm.commands import Commands
from trainshed.engines.slurm.machines import Machines
from trainshed.model.pools import Pool

PARTITION = "PartitionName=all Default=YES GraceTime={grace} MaxTime=01:00:00"


def machines(folder: Path, grace: str = "0", preemption: str = "preempt/partition_prio") -> Machines:
    """Machines of a cluster whose controller says so."""
    tool = folder / "scontrol"
    said = PARTITION.format(grace=grace)
    tool.write_text(
        f"#!/bin/sh\ncase $* in *partitions*) echo '{said}';; *config*) echo 'PreemptType = {preemption}';; esac\n"
    )
    tool.chmod(0o755)
    commands = Commands({"PATH": f"{folder}:/usr/bin:/bin"})
    return Machines(commands, BadNodes(folder / "bad.json"), time.time)


@pytest.mark.parametrize(
    ("grace", "preemption", "options", "warns"),
    [
        ("0", "preempt/partition_prio", (), False),
        ("0", "preempt/none", ("--constraint=fast",), False),
        ("60", "preempt/partition_prio", (), True),
        ("0", "preempt/qos", (), True),
        ("0", "", (), True),
        ("0", "preempt/none", ("--signal=TERM@60",), True),
        ("0", "preempt/none", ("--partition=other",), True),
        ("0", "preempt/none", ("-pother",), True),
    ],
)
def test_a_step_is_needed_where_a_warning_may_come(
    tmp_path: Path, grace: str, preemption: str, options: tuple[str, ...], warns: bool
) -> None:
    known = machines(tmp_path, grace, preemption)
    assert known.warns(Pool("lab", "slurm", options=options)) is warns
    assert known.longest(Pool("lab", "slurm")) == 60


def test_a_silent_controller_may_warn(tmp_path: Path) -> None:
    tool = tmp_path / "scontrol"
    tool.write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2; exit 1\n")
    tool.chmod(0o755)
    known = Machines(Commands({"PATH": str(tmp_path)}), BadNodes(tmp_path / "bad.json"), time.time)
    assert known.warns(Pool("lab", "slurm")) and known.longest(Pool("lab", "slurm")) == 0
