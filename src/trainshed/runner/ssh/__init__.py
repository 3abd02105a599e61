"""ssh into a node of a job: served inside its sandbox, so that it reaches what the job reaches and nothing else."""

from __future__ import annotations

from trainshed.runner.ssh.door import SshDoor, plan_door

__all__ = ["SshDoor", "plan_door"]
