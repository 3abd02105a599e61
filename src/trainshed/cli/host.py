"""Commands that act on this host: up, down, status, backup, restore, doctor."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainshed.cli.connection import connection_options
from trainshed.model.errors import HostUnfit
from trainshed.model.home import Home

if TYPE_CHECKING:
    from trainshed.daemon.doctor import Finding

__all__ = ["backup", "doctor", "down", "print_findings", "restore", "status", "up"]

_home_option = click.option(
    "--home", metavar="DIR", help="The platform's home folder [env: TRAINSHED_HOME; ~/.trainshed]."
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def require_linux() -> None:
    """Refuse on other systems, before anything is loaded that exists on Linux only."""
    if sys.platform != "linux":
        raise HostUnfit(
            "The server runs on Linux only.",
            hint="Command line and Python client work here: `trainshed login URL` connects to a server.",
            code="not_linux",
        )


def find_home(given: str | None) -> Path:
    """The home folder that this command is about."""
    name = given or connection_options().home or os.environ.get("TRAINSHED_HOME")
    return (Path(name) if name else Path.home() / ".trainshed").expanduser().absolute()


@click.command()
@_home_option
@click.option("--host", metavar="ADDRESS", help="Address to listen on [127.0.0.1].")
@click.option("--port", type=int, help="Port of the API and the console; 0 takes any free one [7480].")
@click.option("--obs-port", type=int, help="Port of the object store; 0 takes any free one [7481].")
@click.option(
    "--store",
    metavar="URL",
    help="Keep objects at an S3 or OBS endpoint (s3://bucket/prefix), not in the home.",
)
@click.option("--tls", is_flag=True, help="Speak TLS, with a certificate from a CA of the platform's own.")
@click.option("--detach", "-d", is_flag=True, help="Run in the background.")
@click.option(
    "--engine", type=click.Choice(["local", "slurm"]), help="What runs jobs that name no pool [local]."
)
@click.option("--rehearse", metavar="KIND:COUNT", help="Declare pretend devices, such as ascend:8.")
@click.option(
    "--allow-unsandboxed", is_flag=True, help="Run jobs without a sandbox where this host offers none."
)
def up(
    home: str | None,
    host: str | None,
    port: int | None,
    obs_port: int | None,
    store: str | None,
    tls: bool,
    detach: bool,
    engine: str | None,
    rehearse: str | None,
    allow_unsandboxed: bool,
) -> None:
    """Start the platform on this machine.

    It stays in the foreground until Ctrl-C, or goes to the background with --detach. The first start makes
    the home folder and prints a link that signs you in.
    """
    require_linux()
    from trainshed.daemon.startup import prepare, render_banner, replace_with_supervisor, start_detached

    given = {
        "host": host,
        "port": port,
        "obs_port": obs_port,
        "store_url": store,
        "tls": tls or None,
        "engine": engine,
        "rehearse": rehearse,
        "allow_unsandboxed": allow_unsandboxed or None,
    }
    prepared = prepare(find_home(home), given, os.environ)
    if not detach:
        replace_with_supervisor(prepared)
    start_detached(prepared)
    click.echo(render_banner(prepared, detached=True))


@click.command()
@_home_option
def down(home: str | None) -> None:
    """Stop the platform. Jobs that run go on; the next `trainshed up` finds them again."""
    require_linux()
    from trainshed.daemon.processes import describe_platform
    from trainshed.daemon.shutdown import stop_platform

    place = Home(find_home(home))
    pid = stop_platform(place)
    if pid is None:
        click.echo(f"No platform runs in {place.path}.")
        return
    click.echo(f"The platform (pid {pid}) has stopped.")
    running = describe_platform(place)["jobs"].get("Running", 0)
    if running:
        click.echo(f"{running} running job(s) go on; `trainshed up` finds them again.")


@click.command()
@_home_option
@_json_option
def status(home: str | None, as_json: bool) -> None:
    """Show whether the platform runs: its processes, memory, ports, disk and jobs.

    The exit code is 0 when all of it runs, 3 when it does not run, 4 when a part is missing.
    """
    require_linux()
    from trainshed.daemon.processes import describe_platform

    description = describe_platform(Home(find_home(home)))
    if as_json:
        click.echo(json.dumps(description, indent=2))
    else:
        _print_status(description)
    if not description["running"]:
        raise SystemExit(3)
    if not description["ready"]:
        raise SystemExit(4)


def _print_status(description: dict[str, Any]) -> None:
    if not description["running"]:
        click.secho("Trainshed does not run here.", bold=True)
        click.echo(f"  Home     {description['home']}" + ("" if description["exists"] else " (not made yet)"))
        click.echo("  Start    trainshed up")
    else:
        state = "is up" if description["ready"] else "is up, but a part of it is not"
        minutes, seconds = divmod(int(description["uptime_seconds"]), 60)
        hours, minutes = divmod(minutes, 60)
        click.secho(
            f"Trainshed {description['version']} {state} (for {hours}:{minutes:02}:{seconds:02}).", bold=True
        )
        click.echo(f"  API      {description['url']}")
        click.echo(f"  Store    {description['obs_url']}")
        click.echo(f"  Home     {description['home']}")
        click.echo()
        for part in description["processes"]:
            restarts = f", restarted {part['restarts']} x ({part['last_exit']})" if part["restarts"] else ""
            click.echo(
                f"  {part['name']:<12} {part['pid'] or '-':>8}  {part['memory_mb']:>6.1f} MB  {part['state']}{restarts}"
            )
        click.echo(f"  {'in all':<12} {'':>8}  {description['memory_mb']:>6.1f} MB")
        click.echo()
    disk = description["disk"]
    click.echo(f"  Disk     {disk['free_gb']} of {disk['total_gb']} GB free")
    if description["jobs"]:
        jobs = ", ".join(f"{count} {phase}" for phase, count in description["jobs"].items())
        click.echo(f"  Jobs     {jobs}")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@_home_option
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
def backup(file: Path, home: str | None, force: bool) -> None:
    """Write the platform's whole state to FILE, while it runs.

    FILE is a tar archive with a manifest and checksums: database, object store, settings and the key of the
    secrets. Keep it as safe as the platform itself. FILE appears only when it is complete.
    """
    require_linux()
    from trainshed.daemon.backup import write_backup

    summary = write_backup(Home(find_home(home)), file, replace=force)
    click.echo(f"{file}: {summary.objects} objects, {summary.size / 1e6:.1f} MB.")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@_home_option
@click.option("--force", is_flag=True, help="Move a home that is there aside, to HOME.before-restore-…")
def restore(file: Path, home: str | None, force: bool) -> None:
    """Bring back the state that `trainshed backup` wrote to FILE.

    A damaged archive is refused before anything is touched.
    """
    require_linux()
    from trainshed.daemon.restore import restore_backup

    place = Home(find_home(home))
    outcome = restore_backup(file, place, force=force)
    click.echo(f"{place.path} is restored: {outcome.objects} objects, taken at {outcome.taken_at}.")
    if outcome.moved_to:
        click.echo(f"The former home is now {outcome.moved_to}.")
    click.echo("Start it with `trainshed up`.")


def print_findings(findings: Iterable[Finding]) -> None:
    """Print what was looked at, each fault with its fix."""
    colours = {"ok": "green", "warn": "yellow", "bad": "red"}
    for finding in findings:
        mark = click.style(f"{finding.level:<4}", fg=colours[finding.level], bold=True)
        click.echo(f"{mark}  {finding.subject:<16} {finding.message}")
        if finding.fix:
            click.echo(f"      {'':<16} Fix: {finding.fix}")


@click.command()
@_home_option
@_json_option
def doctor(home: str | None, as_json: bool) -> None:
    """Check whether this host is fit to run the platform; each fault comes with its fix."""
    require_linux()
    from trainshed.daemon.doctor import examine_host

    findings = examine_host(Home(find_home(home)), os.environ)
    if as_json:
        click.echo(json.dumps([finding.to_dict() for finding in findings], indent=2))
    else:
        print_findings(findings)
    bad = sum(finding.level == "bad" for finding in findings)
    if bad:
        raise SystemExit(1)
    if not as_json:
        click.echo("This host is fit.")
