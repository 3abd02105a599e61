"""Runs Slurm's commands: each with a time limit, a small environment of its own, and a clear fault."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainshed.engines.slurm.reasons import Words, is_passing
from trainshed.model.errors import TrainshedError, Unavailable

__all__ = ["Commands", "Done", "SlurmRefusal"]

_SECONDS = 30.0
# All that a command gets to see of the platform's own variables; a job would inherit the others.
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "SLURM_CONF", "SLURM_CLUSTERS", "LD_LIBRARY_PATH")
# What sudo may say before it does as it is told; how it begins when it refuses (Slurm's commands begin with their names).
_SUDO_REMARK = re.compile(r"^sudo: unable to resolve host .*\n?", re.MULTILINE)
_SUDO_WORDS = ("sudo:", "Sorry, user ", "is not in the sudoers file")
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
        seconds: float = 0.0,
    ) -> Done:
        """Run a command and return what it printed.

        `account` is the Unix account under which it runs: by sudo, or directly where the platform is root's.
        `variables` are added to its environment; of them sudo lets pass what the site's rule names.
        What will pass by itself is Unavailable; all else that Slurm refuses is a SlurmRefusal.
        """
        program = self.find(command[0])
        if program is None:
            raise Unavailable(
                f"The command {command[0]} is not installed on the platform's machine.",
                hint="Install Slurm's client commands here; `trainshed engine check slurm` looks for all of them.",
                code="slurm_missing",
            )
        environment = {**self._environment, **(variables or {})}
        line, identity = self._become(account, environment)
        try:
            done = subprocess.run(
                [*line, program, *command[1:]],
                input=given,
                capture_output=True,
                text=True,
                errors="replace",
                env=environment,
                timeout=seconds or self._seconds,
                cwd="/",
                check=False,
                **identity,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(
                f"Slurm's command {command[0]} did not answer within {seconds or self._seconds:g} s.",
                hint="Is the controller overloaded? `scontrol ping` shows whether it answers.",
                code="slurm_unreachable",
            ) from None
        except OSError as fault:
            raise Unavailable(f"{command[0]} could not be started: {fault}.", code="slurm_missing") from None
        if done.returncode == 0:
            return Done(done.stdout, done.stderr)
        said = (_SUDO_REMARK.sub("", done.stderr).strip() or done.stdout.strip())[:2000]
        if line and any(mark in said for mark in _SUDO_WORDS):
            raise Unavailable(
                f"The platform may not run {command[0]} as '{account}': {said[:300]}",
                hint="`trainshed engine sudoers` prints the rule that is missing in /etc/sudoers.d. Once it is there, the "
                "job is tried again by itself within a minute.",
                code="no_sudo_rule",
            )
        passing = is_passing(said)
        if passing or done.returncode < 0:
            words = passing or Words(f"{command[0]} was ended by signal {-done.returncode}.")
            raise Unavailable(words.reason, hint=words.hint, code="slurm_unreachable")
        raise SlurmRefusal(said or f"{command[0]} ended with code {done.returncode}.")

    def _become(self, account: str, environment: dict[str, str]) -> tuple[list[str], dict[str, Any]]:
        """What stands before a command that runs as another account, and how its process is started."""
        if not account:
            return [], {}
        try:
            entry = pwd.getpwnam(account)
        except KeyError:
            raise Unavailable(
                f"There is no Unix account '{account}' on the platform's machine any more.",
                hint="Make it again, or name another one in accounts of the pool.",
                code="no_account",
            ) from None
        if os.geteuid() == 0:
            environment |= {"HOME": entry.pw_dir, "USER": account, "LOGNAME": account}
            groups = os.getgrouplist(account, entry.pw_gid)
            return [], {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups}
        sudo = self.find(self._sudo)
        if sudo is None:
            raise Unavailable(
                "sudo is not installed on the platform's machine.",
                hint="Install it: with run_as = 'user' jobs are submitted through it.",
                code="no_sudo_rule",
            )
        return [sudo, "-n", "-u", account, "--"], {}
