"""Nodes that could not begin: they say why, so that nobody has to look for it in a machine's own logs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainshed.model.attempt import Cause, Ending, NodeReport
from trainshed.model.errors import Conflict, InvalidInput
from trainshed.model.launch_plan import to_json
from trainshed.services.attempt_tokens import AttemptCaller
from trainshed.services.platform import Platform
from trainshed.services.runner_mirror import Mirror

__all__ = ["FailedStart", "take_failed_start"]

_CODE = re.compile(r"[a-z_]{1,40}")
# What is wrong with the pool's settings rather than with one machine.
_OF_THE_PLATFORM = ("no_python", "wrong_runner", "addresses")


@dataclass(frozen=True)
class FailedStart:
    """What a process says that will not run its node."""

    node: int
    nonce: str
    host: str
    code: str
    message: str
    hint: str = ""


def take_failed_start(platform: Platform, runner: AttemptCaller, said: FailedStart) -> None:
    """Write the node's last report in its place, unless another process runs the node."""
    job, attempt = runner.job, runner.attempt.attempt
    if not 0 <= said.node < job.nodes or not _CODE.fullmatch(said.code):
        raise InvalidInput("This is no node of the job, or no reason.", where="node")
    mirror = Mirror(platform.home, job.id, attempt, said.node)
    claim = mirror.read_claim()
    if claim is not None and claim.nonce != said.nonce:
        raise Conflict("The node is run by another process.", code="claimed")
    if mirror.has_ended():
        return
    now = platform.clock()
    message = f"{said.host}: {said.message}" if said.host else said.message
    if said.code == "stopped":
        ending = Ending("stopped", "stop", "stopped", said.message, node=said.node, time=now)
    else:
        cause: Cause = "platform" if said.code in _OF_THE_PLATFORM else "node"
        ending = Ending("failed", cause, said.code, message, said.hint, node=said.node, time=now)
    report = NodeReport(job.id, attempt, said.node, 0, "ended", ending=ending, ended_at=now)
    mirror.folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    mirror.write_report(to_json(report))
    platform.ring()
