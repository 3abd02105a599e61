"""Runs Slurm's commands: each with a time limit, a small environment of its own, and a clear fault."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainshed.engines.slurm.reasons import is_passing
from trainshed.model.errors import TrainshedError, Unavailable

__all__ = ["Commands", "Done", "SlurmRefusal"]

_SECONDS = 30.0
# All that a command gets to see of the platform's own variables; a job would inherit the others.
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "SLURM_CONF", "SLURM_CLUSTERS", "LD_LIBRARY_PATH")
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:/opt/slurm/bin"


class SlurmRefusal(TrainshedError):
    """Slurm refused what it was asked, for good; `said` are its own words."""

    status = 400
    code = "slurm_refused"

    def __init__(self, said: str) -> None:
        super().__init__(f"Slurm refused: {said[:400]}")
        self.said = said


@dataclass(frozen=True)
class Done:
    """What a command printed."""

    out: str
    err: str = ""


class Commands:
    """Runs the commands of the cluster to which this machine belongs."""

    def __init__(
        self, environment: Mapping[str, str] | None = None, *, seconds: float = _SECONDS, sudo: str = "sudo"
    ) -> None:
        given = os.environ if environment is None else environment
        self._environment = {name: given[name] for name in _KEPT if name in given}
        self._environment["PATH"] = f"{self._environment.get('PATH', '')}:{_PATH}".lstrip(":")
        self._seconds = seconds
        self._sudo = sudo

    def find(self, name: str) -> str | None:
        """Where a command is, or None."""
        return shutil.which(name, path=self._environment["PATH"])

    def run(
        self,
        *command: str,
        given: str = "",
        account: str = "",
        variables: Mapping[str, str] | None = None,
    ) -> Done:
        """Run a command and return what it printed.

        `account` is the Unix account under which it runs (by sudo), `variables` are added to its environment.
        What will pass by itself is Unavailable; all else that Slurm refuses is a SlurmRefusal.
        """
        program = self.find(command[0])
        if program is None:
            raise Unavailable(
                f"The command {command[0]} is not installed on the platform's machine.",
                hint="Install Slurm's client commands here; `trainshed engine check slurm` looks for all of them.",
                code="slurm_missing",
            )
        variables = dict(variables or {})
        line = [*self._as(account, variables), program, *command[1:]]
        try:
            done = subprocess.run(
                line,
                input=given,
                capture_output=True,
                text=True,
                errors="replace",
                env={**self._environment, **variables},
                timeout=self._seconds,
                cwd="/",
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(
                f"Slurm's command {command[0]} did not answer within {self._seconds:g} s.",
                hint="Is the controller overloaded? `scontrol ping` shows whether it answers.",
                code="slurm_unreachable",
            ) from None
        except OSError as fault:
            raise Unavailable(f"{command[0]} could not be started: {fault}.", code="slurm_missing") from None
        if done.returncode == 0:
            return Done(done.stdout, done.stderr)
        said = (done.stderr.strip() or done.stdout.strip())[:2000]
        if done.returncode and account and said.startswith("sudo:"):
            raise Unavailable(
                f"The platform may not run {command[0]} as '{account}': {said[:300]}",
                hint="Add the sudo rule of docs/slurm.md; `trainshed engine check slurm` tries it.",
                code="no_sudo_rule",
            )
        passing = is_passing(said)
        if passing or done.returncode < 0:
            raise Unavailable(
                passing or f"{command[0]} was ended by signal {-done.returncode}.",
                hint="It is tried again; `trainshed engine check slurm` says what is wrong.",
                code="slurm_unreachable",
            )
        raise SlurmRefusal(said or f"{command[0]} ended with code {done.returncode}.")

    def _as(self, account: str, variables: Mapping[str, str]) -> Sequence[str]:
        if not account:
            return ()
        kept = ",".join(
            sorted({*variables, *(name for name in ("SLURM_CONF",) if name in self._environment)})
        )
        return (self._sudo, "-n", "-u", account, *((f"--preserve-env={kept}",) if kept else ()), "--")
