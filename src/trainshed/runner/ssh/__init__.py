"""ssh into a node of a job: served inside its sandbox, so that it reaches what the job reaches and nothing else."""

from __future__ import annotations

from trainshed.runner.ssh.door import SshDoor, plan_door
from trainshed.runner.ssh.gate import Gate

__all__ = ["Gate", "SshDoor", "plan_door"]
