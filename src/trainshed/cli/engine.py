"""What runs jobs: whether a cluster can be used."""

from __future__ import annotations

import json
import os

import click

from trainshed.cli.host import find_home, print_findings, require_linux
from trainshed.cli.presentation import json_option
from trainshed.model.home import Home

__all__ = ["engine"]


@click.group()
def engine() -> None:
    """What runs jobs: this machine, or a cluster."""


@engine.command()
@click.argument("name", type=click.Choice(["slurm"]))
@click.option("--home", metavar="DIR", help="The platform's home folder [env: TRAINSHED_HOME; ~/.trainshed].")
@json_option
def check(name: str, home: str | None, as_json: bool) -> None:
    """Check whether this platform can use the cluster; each fault comes with its fix.

    Looks at Slurm's commands, its controller, every pool of the settings and the accounts that jobs run under.
    Nothing is started in the cluster.
    """
    require_linux()
    from trainshed.daemon.home_folder import load_settings
    from trainshed.daemon.slurm_check import examine_slurm

    settings = load_settings(Home(find_home(home)), os.environ, {})
    findings = examine_slurm(settings)
    if as_json:
        click.echo(json.dumps([finding.to_dict() for finding in findings], indent=2))
    else:
        print_findings(findings)
    if any(finding.level == "bad" for finding in findings):
        raise SystemExit(1)
    if not as_json:
        click.echo("The cluster can be used.")
