"""`trainshed notify`: be told when a job ends."""

from __future__ import annotations

import click

from trainshed.cli.connection import open_client
from trainshed.cli.presentation import json_option, print_json, print_table

__all__ = ["notify"]


@click.group()
def notify() -> None:
    """Be told about jobs: by a signed message to a URL, or by mail."""


@notify.command()
@click.argument("address")
@click.option(
    "--on", "events", default="", metavar="EVENT,...", help="completed, failed, stopped, restarted, held."
)
@click.option("--workspace-jobs", is_flag=True, help="About all jobs of the workspace (managers).")
@json_option
def add(address: str, events: str, workspace_jobs: bool, as_json: bool) -> None:
    """Add an ADDRESS: a URL or a mail address. By default you are told how your jobs end."""
    chosen = [event.strip() for event in events.split(",") if event.strip()]
    with open_client() as client:
        found = client.add_notification(address, chosen or None, covers_workspace=workspace_jobs)
    if as_json:
        print_json(found)
        return
    click.echo(f"Added {found.id[:8]}: {found.address}, on {', '.join(found.events)}.")
    if found.secret:
        click.echo(f"Secret that signs the messages, shown this once: {found.secret}")
    click.echo(f"Try it: trainshed notify test {found.id[:8]}", err=True)


@notify.command("list")
@json_option
def list_all(as_json: bool) -> None:
    """List where you are told, and how the last message went."""
    with open_client() as client:
        found = client.notifications()
    if as_json:
        print_json(found)
        return
    print_table(
        ("ID", "ADDRESS", "ABOUT", "EVENTS", "LAST"),
        [
            (
                target.id[:8],
                target.address,
                "all jobs" if target.covers == "workspace" else f"jobs of {target.owner}",
                ",".join(target.events),
                f"{target.last_event} {target.last_state} {target.last_error}".strip() or "-",
            )
            for target in found
        ],
        elastic="LAST",
        empty="You are not told about jobs yet: `trainshed notify add https://...` or a mail address.",
    )


@notify.command()
@click.argument("target")
def remove(target: str) -> None:
    """Remove a TARGET (its id, or the beginning of it)."""
    with open_client() as client:
        client.remove_notification(target)
    click.echo("Removed.")


@notify.command()
@click.argument("target")
def test(target: str) -> None:
    """Send a message to a TARGET that only says that messages arrive."""
    with open_client() as client:
        client.test_notification(target)
    click.echo("On its way; `trainshed notify list` shows how it went.")
