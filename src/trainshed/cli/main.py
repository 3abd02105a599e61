"""The `trainshed` command. Each subcommand's module loads only when it is used."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from trainshed import __version__
from trainshed.cli.connection import ConnectionOptions
from trainshed.model.errors import TrainshedError

__all__ = ["COMMANDS", "LazyGroup", "cli", "main"]

# Section -> command -> (where it lives, one line of help). The line stands here, not in the module, so that
# `--help` need not load anything.
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Jobs": {
        "run": ("trainshed.cli.submission:run", "Run a training job made from options."),
        "submit": ("trainshed.cli.submission:submit", "Run the training job that a file describes."),
        "jobs": ("trainshed.cli.jobs:jobs", "List jobs, newest first."),
        "show": ("trainshed.cli.jobs:show", "Show one job."),
        "logs": ("trainshed.cli.logs:logs", "Print or follow a job's log."),
        "files": ("trainshed.cli.files:files", "List or download files that a job left."),
        "metrics": ("trainshed.cli.metrics:metrics", "Show a job's metrics, with a small curve for each."),
        "ssh": ("trainshed.cli.ssh:ssh", "Open a shell in a running job, or run a command there."),
        "ssh-proxy": ("trainshed.cli.ssh:ssh_proxy", "Carry an ssh client's bytes to a job."),
        "tensorboard": ("trainshed.cli.tensorboard:tensorboard", "Open TensorBoard for a job."),
        "explain": ("trainshed.cli.jobs:explain", "Say why a job waits or failed, and the next step."),
        "stop": ("trainshed.cli.jobs:stop", "Stop a job."),
        "hold": ("trainshed.cli.jobs:hold", "Hold a job open after its training has ended."),
        "rerun": ("trainshed.cli.jobs:rerun", "Run a job again, with the same code and settings."),
        "delete": ("trainshed.cli.jobs:delete", "Delete a job that has ended, with its logs."),
    },
    "Data": {
        "obs": ("trainshed.cli.obs:obs", "Buckets and objects: mb, mkdir, ls, cp, sync, cat, rm."),
    },
    "What there is": {
        "flavors": ("trainshed.cli.catalog:flavors", "List what a node of a job can get."),
        "engines": ("trainshed.cli.catalog:engines", "List the preset environments."),
        "ranktable": ("trainshed.cli.ranktable:ranktable", "Print, check and merge Ascend rank tables."),
        "nodes": ("trainshed.cli.catalog:nodes", "List the machines that run jobs."),
    },
    "Access": {
        "login": ("trainshed.cli.access:login", "Connect this command line to a platform."),
        "whoami": ("trainshed.cli.access:whoami", "Show who you are and where."),
        "credentials": ("trainshed.cli.access:credentials", "Print endpoints, token and access keys."),
        "token": ("trainshed.cli.access:token", "Create, list and revoke tokens."),
        "key": ("trainshed.cli.access:key", "Create, list and delete access keys."),
        "ssh-keys": ("trainshed.cli.ssh:ssh_keys", "Register, list and remove public keys for ssh."),
        "login-link": ("trainshed.cli.access:login_link", "Print a link that signs in to the console once."),
        "notify": ("trainshed.cli.notify:notify", "Be told when jobs end: by a URL or by mail."),
        "user": ("trainshed.cli.access:user", "Add and list users (administrators)."),
        "workspace": ("trainshed.cli.access:workspace", "Add and list workspaces and members."),
    },
    "This host": {
        "up": ("trainshed.cli.host:up", "Start the platform on this machine."),
        "down": ("trainshed.cli.host:down", "Stop the platform; running jobs go on."),
        "status": ("trainshed.cli.host:status", "Show whether the platform runs, and its parts."),
        "backup": ("trainshed.cli.host:backup", "Write the platform's state to one file."),
        "restore": ("trainshed.cli.host:restore", "Bring back the state from such a file."),
        "tls": ("trainshed.cli.tls:tls", "The platform's CA and certificate: ca, show."),
        "runner": ("trainshed.cli.runner:runner", "The program that runs jobs on other machines, as a file."),
        "engine": ("trainshed.cli.engine:engine", "Check whether a cluster can run jobs: check slurm."),
        "doctor": ("trainshed.cli.host:doctor", "Check whether this host is fit, with a fix for each fault."),
    },
}
_PLACES = {name: place for section in COMMANDS.values() for name, (place, _) in section.items()}


class LazyGroup(click.Group):
    """A group that knows its commands by name and loads one only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of the help page."""
        return list(_PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, loaded now."""
        place = _PLACES.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name; an unknown one is answered with the closest."""
        if args and args[0] not in _PLACES and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], _PLACES, n=1)
            hint = f"Did you mean '{close[0]}'?" if close else "`trainshed --help` lists the commands."
            ctx.fail(f"There is no command '{args[0][:60]}'. {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, without loading them."""
        for section, commands in COMMANDS.items():
            with formatter.section(section):
                formatter.write_dl([(name, line) for name, (_, line) in commands.items()], col_max=14)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; every error ends as one screen: what, where, the next step."""
        try:
            return super().invoke(ctx)
        except TrainshedError as fault:
            _print_error(fault)
            ctx.exit(1)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            click.echo(err=True)
            ctx.exit(130)
        except Exception as fault:
            if os.environ.get("TRAINSHED_DEBUG"):
                raise
            _print_error(_unexpected(fault))
            ctx.exit(1)


def _unexpected(fault: Exception) -> TrainshedError:
    if isinstance(fault, OSError) and fault.filename:
        return TrainshedError(
            f"{fault.strerror or fault}.",
            where=str(fault.filename),
            hint="Check the path and its permissions.",
        )
    return TrainshedError(
        f"Something unexpected happened: {type(fault).__name__}: {str(fault)[:500]}",
        hint="Set TRAINSHED_DEBUG=1 to see the traceback; it belongs into a bug report.",
    )


def _print_error(fault: TrainshedError) -> None:
    click.secho(f"Error: {fault.message}", err=True, fg="red", bold=True)
    if fault.where:
        click.echo(f"Where: {fault.where}", err=True)
    if fault.hint:
        click.echo(f"Next:  {fault.hint}", err=True)


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="JOB is a job's name, its id, or the beginning of its id.",
)
@click.option("--url", metavar="URL", help="The platform to talk to [env: TRAINSHED_URL].")
@click.option(
    "--home", metavar="DIR", help="The platform's home on this machine [env: TRAINSHED_HOME; ~/.trainshed]."
)
@click.option(
    "--ca",
    metavar="FILE",
    help="The CA of the platform's certificate, if it has its own [env: TRAINSHED_CA].",
)
@click.version_option(__version__, prog_name="trainshed", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, url: str | None, home: str | None, ca: str | None) -> None:
    """Trainshed: train on one machine or a cluster, and take the model home."""
    ctx.obj = ConnectionOptions(url, home, ca)


def main() -> None:
    """Entry point of the `trainshed` program."""
    for stream in (sys.stdout, sys.stderr):
        # A log may hold any bytes and a terminal may speak any encoding: never fail on a character.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    cli(prog_name="trainshed")


if __name__ == "__main__":
    main()
