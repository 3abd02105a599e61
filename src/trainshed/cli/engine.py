"""What runs jobs: whether a cluster can be used, and the rule that lets the platform submit as its users."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from trainshed.cli.host import find_home, print_findings, require_linux
from trainshed.cli.presentation import json_option
from trainshed.model.home import Home

if TYPE_CHECKING:
    from trainshed.model.settings import Settings

__all__ = ["engine"]

# What `trainshed up` may have been given on its command line.
_GIVEN = ("host", "port", "obs_port", "tls", "public_url", "public_obs_url", "engine")
_home_option = click.option(
    "--home", metavar="DIR", help="The platform's home folder [env: TRAINSHED_HOME; ~/.trainshed]."
)


@click.group()
def engine() -> None:
    """What runs jobs: this machine, or a cluster."""


@engine.command()
@click.argument("name", type=click.Choice(["slurm"]))
@_home_option
@click.option("--try", "is_trial", is_flag=True, help="Also run a tiny test job on a machine of each pool.")
@click.option(
    "--wait", type=click.IntRange(1, 86400), default=60, show_default=True, help="Seconds for each test job."
)
@json_option
def check(name: str, home: str | None, is_trial: bool, wait: int, as_json: bool) -> None:
    """Check whether this platform can use the cluster; each fault comes with its fix.

    Looks at Slurm's commands, its controller, every pool of the settings, the accounts that jobs run under and the
    sudo rule. Nothing is started in the cluster, unless you ask for it with --try: then a test job looks at Python,
    the way to the platform, the clock, the disk and the sandbox of a machine. Ends with code 1 when something is missing.
    """
    require_linux()
    from trainshed.daemon.slurm_accounts import list_user_names, require_owner
    from trainshed.daemon.slurm_check import examine_slurm

    place = Home(find_home(home))
    require_owner(place)
    settings = _settings_of(place)
    names = list_user_names(place, settings)
    findings = examine_slurm(settings, home=place, names=names, wait=wait if is_trial else 0)
    if as_json:
        click.echo(json.dumps([finding.to_dict() for finding in findings], indent=2))
    else:
        print_findings(findings)
    if any(finding.level == "bad" for finding in findings):
        raise SystemExit(1)
    if not as_json:
        click.echo("The cluster can be used.")


@engine.command()
@_home_option
@click.option(
    "--service", metavar="ACCOUNT", default="", help="The platform's account [the owner of its home]."
)
def sudoers(home: str | None, service: str) -> None:
    """Print the sudo rule with which the platform submits as its users.

    The rule allows two commands, sbatch and scancel, with the platform's own arguments, for the accounts of the pools
    with run_as = "user". Put it into /etc/sudoers.d/trainshed:

    \b
        trainshed engine sudoers | sudo tee /etc/sudoers.d/trainshed && sudo visudo -c
    """
    require_linux()
    from trainshed.daemon.slurm_accounts import list_user_names, owner_of, sudo_rule_of

    place = Home(find_home(home))
    settings = _settings_of(place)
    names = list_user_names(place, settings)
    click.echo(sudo_rule_of(settings, names, service or owner_of(place)), nl=False)


def _settings_of(home: Home) -> Settings:
    """The settings of a platform: of one that runs, with what it was given when it was started."""
    from trainshed.daemon.home_folder import find_holder, load_settings
    from trainshed.daemon.startup import read_state

    state = read_state(home) if find_holder(home) is not None else {}
    return load_settings(home, os.environ, {name: state[name] for name in _GIVEN if state.get(name)})
