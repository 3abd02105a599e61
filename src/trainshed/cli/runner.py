"""The program that runs jobs on other machines, as a file."""

from __future__ import annotations

from pathlib import Path

import click

from trainshed.cli.host import require_linux
from trainshed.cli.presentation import json_option, print_fields, print_json

__all__ = ["runner"]


@click.group()
def runner() -> None:
    """The program beside a job's code on the nodes of a cluster."""


@runner.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@json_option
def bundle(file: Path, as_json: bool) -> None:
    """Write the runner of this installation to FILE: all of it in one file, for any Python from 3.11 on.

    Nodes fetch it by themselves. The same installation always gives the same bytes.
    """
    require_linux()
    from trainshed.daemon.runner_file import write_runner

    facts = write_runner(file)
    if as_json:
        print_json(facts)
    else:
        print_fields([(name, str(value)) for name, value in facts.items()])
