"""The rule by which sudo lets the platform submit as its users: two commands with their arguments, and no more."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from trainshed.model.errors import InvalidInput

__all__ = ["SECRET_VARIABLES", "render_sudo_rule", "takes_expressions"]

# What a runner's start needs to know and nobody else may: sudo lets these variables pass, and no others.
SECRET_VARIABLES = ("TRAINSHED_RUNNER_TOKEN",)
_SAFE_PATH = re.compile(r"/[A-Za-z0-9._/+-]+")
_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
# The names of the platform's jobs (`batch_script.job_name`), and a number of Slurm's.
_JOB = "trainshed-[0-9a-f]+-[0-9a-z-]+-[0-9]+"


def takes_expressions(version: str) -> bool:
    """Whether this sudo (`sudo -V`) knows regular expressions: since 1.9.10."""
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", version)
    return found is not None and tuple(map(int, found.groups())) >= (1, 9, 10)


def render_sudo_rule(
    service: str,
    accounts: Iterable[str],
    groups: Iterable[str] = (),
    *,
    sbatch: str = "/usr/bin/sbatch",
    scancel: str = "/usr/bin/scancel",
    configuration: str = "",
    expressions: bool = True,
) -> str:
    """The file for /etc/sudoers.d: `service` may submit and cancel the platform's jobs as these accounts.

    `configuration` is the value of SLURM_CONF, where the cluster needs one. Without `expressions` (an older sudo) the
    arguments of scancel are given by patterns, which are a little wider.
    """
    whom = [*sorted(set(accounts)), *(f"%{group}" for group in sorted(set(groups)))]
    for name in (service, *(word.removeprefix("%") for word in whom)):
        if not _SAFE_NAME.fullmatch(name) or name in ("root", "ALL"):
            raise InvalidInput(f"'{name[:80]}' cannot stand in a sudo rule.", code="bad_sudo_rule")
    for path in (sbatch, scancel, configuration):
        if path and not _SAFE_PATH.fullmatch(path):
            raise InvalidInput(f"'{path[:200]}' cannot stand in a sudo rule.", code="bad_sudo_rule")
    if not whom:
        raise InvalidInput(
            "There is no account that the platform could submit as.",
            hint="Fill in `accounts` or `account_group` of the pool, or add users with accounts of the same names.",
            code="no_account",
        )
    # Of its own: a machine may have several platforms, each with a file.
    alias = f"SLURM_OF_{re.sub(r'[^A-Z0-9]', '_', service.upper())}"
    kept = " ".join([*SECRET_VARIABLES, *([f"SLURM_CONF={configuration}"] if configuration else [])])
    lines = [
        "# Lets Trainshed submit and cancel its own jobs as the accounts named here, and nothing else.",
        "# Made by `trainshed engine sudoers`.",
        *_render_commands(alias, sbatch, scancel, expressions),
        f'Defaults!{alias} env_reset, !setenv, !requiretty, env_keep += "{kept}"',
        f"{service} ALL = ({', '.join(whom)}) NOPASSWD: NOSETENV: {alias}",
    ]
    return "\n".join(lines) + "\n"


def _render_commands(alias: str, sbatch: str, scancel: str, expressions: bool) -> Sequence[str]:
    if expressions:
        cancels = [rf"{scancel} ^(--state=PENDING )?--name={_JOB} [0-9]+$"]
    else:
        cancels = [
            rf"{scancel} --name\=trainshed-* [0-9]*",
            rf"{scancel} --state\=PENDING --name\=trainshed-* [0-9]*",
        ]
    items = [f"{sbatch} --parsable", *cancels]
    return [
        f"Cmnd_Alias {alias} = {items[0]}, \\",
        *(f"    {item}, \\" for item in items[1:-1]),
        f"    {items[-1]}",
    ]
