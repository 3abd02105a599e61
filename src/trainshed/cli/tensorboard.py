"""`trainshed tensorboard`."""

from __future__ import annotations

import click

from trainshed.cli.connection import open_client
from trainshed.cli.presentation import json_option, print_json, warn

__all__ = ["tensorboard"]


@click.command()
@click.argument("job")
@click.option("--logdir", default="", metavar="PATH", help="A path of the job, or an obs:// folder.")
@click.option("--stop", is_flag=True, help="End the TensorBoards of the job.")
@json_option
def tensorboard(job: str, logdir: str, stop: bool, as_json: bool) -> None:
    """Print a link that opens TensorBoard for a JOB, running or ended, in a browser.

    The link works once, within five minutes. TensorBoard ends by itself when nobody uses it.
    """
    if stop and logdir:
        raise click.UsageError("--stop ends all of them: leave --logdir out.")
    with open_client() as client:
        found = client.get(job)
        if stop:
            count = client.stop_tensorboard(found.id)
            if as_json:
                print_json({"stopped": count})
            else:
                click.echo(f"{count} ended." if count else "None was open.")
            return
        opened = client.open_tensorboard(found.id, logdir)
    if as_json:
        print_json(opened)
        return
    if not opened.has_events:
        warn("The job has written no events yet; the page shows them when they come.")
    click.echo("It shows " + ", ".join(opened.shows) + ".", err=True)
    click.echo(opened.url)
