"""`trainshed obs verify`, `gc` and `quota`: care for the object store, on its own machine."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click

from trainshed.cli.host import find_home, require_linux
from trainshed.model.errors import InvalidInput
from trainshed.model.home import Home

__all__ = ["gc", "quota", "verify"]

_SHOWN = 20
_home_option = click.option(
    "--home", metavar="DIR", help="The platform's home folder [env: TRAINSHED_HOME; ~/.trainshed]."
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@_home_option
@click.option("--quarantine", is_flag=True, help="Set damaged files aside, so that nobody reads wrong bytes.")
@_json_option
def verify(home: str | None, quarantine: bool, as_json: bool) -> None:
    """Read every object again and report what is missing or damaged.

    The platform may run meanwhile. Ends with 1 when an object is not as it was stored.
    """
    require_linux()
    from trainshed.daemon.store_upkeep import check_home

    shown = _Progress(is_wanted=not as_json and sys.stderr.isatty())
    report = check_home(Home(find_home(home)), quarantine=quarantine, on_progress=shown.show)
    shown.end()
    if as_json:
        click.echo(json.dumps({**asdict(report), "is_whole": report.is_whole, "quarantined": quarantine}))
    else:
        click.echo(f"{report.objects} objects, {report.bytes / 1e6:.1f} MB read.")
        for kind, names in (
            ("missing", report.missing),
            ("damaged", report.damaged),
            ("belongs to no object", report.orphans),
        ):
            for name in names[:_SHOWN]:
                click.echo(f"  {kind}: {name}")
            if len(names) > _SHOWN:
                click.echo(f"  ... and {len(names) - _SHOWN} more.")
        if report.is_whole:
            click.echo("Every object is as it was stored.")
        else:
            click.echo(
                "Upload these objects again, or restore a backup; then check the disk."
                + ("" if quarantine else " `--quarantine` sets damaged files aside.")
            )
    if not report.is_whole:
        raise SystemExit(1)


@click.command()
@_home_option
@_json_option
def gc(home: str | None, as_json: bool) -> None:
    """Remove what lifecycle rules end, uploads that were given up, and what killed processes left.

    The platform does the same every hour.
    """
    require_linux()
    from trainshed.daemon.store_upkeep import collect_home

    expired, removed = collect_home(Home(find_home(home)))
    if as_json:
        click.echo(json.dumps({"expired_objects": expired, "removed_files": removed}))
    else:
        click.echo(f"{expired} objects were over; {removed} files that nothing needs were removed.")


@click.command()
@click.argument("workspace")
@click.option("--gb", type=click.IntRange(0), help="Gigabytes it may keep; 0 is no limit.")
@click.option("--objects", type=click.IntRange(0), help="Objects it may keep; 0 is no limit.")
@click.option("--default", "is_default", is_flag=True, help="Back to the quota of the settings.")
@_home_option
@_json_option
def quota(
    workspace: str, gb: int | None, objects: int | None, is_default: bool, home: str | None, as_json: bool
) -> None:
    """Show how much a workspace keeps and may keep, or change that."""
    require_linux()
    from trainshed.daemon.store_upkeep import set_workspace_quota, workspace_usage

    place = Home(find_home(home))
    if is_default:
        if gb is not None or objects is not None:
            raise InvalidInput("--default takes the place of --gb and --objects.", hint="Leave one side out.")
        usage = set_workspace_quota(place, workspace, None, None)
    elif gb is not None or objects is not None:
        now = workspace_usage(place, workspace)
        usage = set_workspace_quota(
            place,
            workspace,
            now.max_bytes if gb is None else gb << 30,
            now.max_objects if objects is None else objects,
        )
    else:
        usage = workspace_usage(place, workspace)
    if as_json:
        click.echo(json.dumps(asdict(usage)))
        return
    click.echo(f"{usage.bytes / 1e9:.2f} GB of {_limit(usage.max_bytes / 2**30, ' GB')}")
    click.echo(f"{usage.objects} objects of {_limit(usage.max_objects, '')}")


def _limit(value: float, unit: str) -> str:
    return f"{value:g}{unit}" if value else "any number"


class _Progress:
    """One line that counts up, on a terminal only."""

    def __init__(self, *, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        self._last = -1

    def show(self, objects: int, size: int, total: int) -> None:
        """Called for every object; writes when the percentage changes."""
        percent = min(100, size * 100 // total) if total else 100
        if self._is_wanted and percent != self._last:
            self._last = percent
            click.echo(f"\r{percent:3} %  {objects} objects", nl=False, err=True)

    def end(self) -> None:
        """Clear the line."""
        if self._last >= 0:
            click.echo("\r" + " " * 40 + "\r", nl=False, err=True)
