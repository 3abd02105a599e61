"""Whether the platform can see its users' jobs at all: a site may hide everybody's jobs from everybody else."""

from __future__ import annotations

import os
import re

from trainshed.engines.slurm.accounts import own_account
from trainshed.engines.slurm.commands import Commands
from trainshed.model.errors import TrainshedError, Unavailable

__all__ = ["require_sight"]


def require_sight(commands: Commands) -> None:
    """Raise Unavailable where Slurm hides users' jobs from the platform's account.

    A platform that submits what it cannot see afterwards would take every job for lost.
    """
    if os.geteuid() == 0:
        return
    settings = commands.run("scontrol", "show", "config").out
    private = re.search(r"^PrivateData\s*=\s*(.*)$", settings, re.MULTILINE)
    if private is None or "jobs" not in private[1].lower().replace(",", " ").split():
        return
    own = own_account()
    if re.search(rf"^SlurmUser\s*=\s*{re.escape(own)}\(", settings, re.MULTILINE) or _is_operator(
        commands, own
    ):
        return
    raise Unavailable(
        "Slurm hides users' jobs from the platform (PrivateData in slurm.conf).",
        hint=f"Make its account an operator: sacctmgr -i add user {own} account=root adminlevel=operator",
        code="slurm_hides_jobs",
    )


def _is_operator(commands: Commands, account: str) -> bool:
    try:
        answer = commands.run(
            "sacctmgr", "-n", "-P", "show", "user", f"name={account}", "format=adminlevel"
        ).out
    except TrainshedError:
        return False
    return answer.strip().lower() in ("operator", "administrator")
