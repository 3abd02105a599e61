"""Rank tables: print one, check one, make one of several, and look for ranks that are given twice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainshed.cli.presentation import json_option, print_json
from trainshed.model.errors import InvalidInput

if TYPE_CHECKING:
    from trainshed.model.rank_table import Server

__all__ = ["ranktable"]

_FORMS = ("A", "B", "C")


@click.group()
def ranktable() -> None:
    """Print, check and merge the files by which Ascend processes find one another."""


@ranktable.command("print")
@click.option(
    "--server", "addresses", multiple=True, required=True, help="Address of a server, in order of ranks."
)
@click.option(
    "--devices", default=8, show_default=True, type=click.IntRange(1, 16), help="Devices of each server."
)
@click.option(
    "--hccn", type=click.Path(exists=True, dir_okay=False), help="Read device addresses from this hccn.conf."
)
@click.option(
    "--form", type=click.Choice(_FORMS), default="C", show_default=True, help="A: lab, B: v0, C: v1."
)
def print_one(addresses: tuple[str, ...], devices: int, hccn: str | None, form: str) -> None:
    """Print a rank table for servers. Without --hccn the devices' addresses are invented, as in a rehearsal."""
    from trainshed.model.rank_table import RankDevice, Server, invent_device_address

    known = _read_hccn(hccn) if hccn else {}
    if hccn and len(addresses) > 1:
        raise click.UsageError("--hccn is of one server: print one table for each, then merge them.")
    missing = [slot for slot in range(devices) if hccn and slot not in known]
    if missing:
        raise InvalidInput(f"{hccn} has no address of device {missing[0]}.", hint="Give fewer --devices.")
    servers = tuple(
        Server(
            address,
            f"worker-{index}",
            tuple(
                RankDevice(slot, known.get(slot) or invent_device_address(index, slot))
                for slot in range(devices)
            ),
        )
        for index, address in enumerate(addresses)
    )
    click.echo(_render(servers, form), nl=False)


@ranktable.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def check(file: Path, as_json: bool) -> None:
    """Check a FILE of any form; its faults are listed, and the command fails if there are any."""
    from trainshed.model.rank_table_check import check_table, read_table

    table = read_table(file.read_text("utf-8", "replace"), str(file))
    faults = check_table(table)
    if as_json:
        print_json(
            {"form": table.form, "servers": len(table.servers), "devices": table.size, "faults": faults}
        )
    else:
        click.echo(f"{file}: form {table.form}, {len(table.servers)} servers, {table.size} devices")
        for fault in faults:
            click.echo(f"  - {fault}")
        if not faults:
            click.echo("  nothing is wrong with it")
    if faults:
        raise click.exceptions.Exit(1)


@ranktable.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--form", type=click.Choice(_FORMS), default="C", show_default=True, help="The form to write.")
def merge(files: tuple[Path, ...], form: str) -> None:
    """Make one table of several FILES, in their order; ranks are counted anew. Any form is read."""
    from trainshed.model.rank_table_check import merge_tables, read_table

    tables = [read_table(file.read_text("utf-8", "replace"), str(file)) for file in files]
    click.echo(_render(merge_tables(tables), form), nl=False)


@ranktable.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--nodes", default=2, show_default=True, type=click.IntRange(1), help="On how many nodes it runs."
)
def lint(files: tuple[Path, ...], nodes: int) -> None:
    """Look in launch scripts for ranks that would be the same on every node."""
    from trainshed.model.rank_lint import lint_ranks

    warnings = [
        warning
        for file in files
        for warning in lint_ranks(file.read_text("utf-8", "replace"), str(file), nodes)
    ]
    for warning in warnings:
        click.echo(warning)
    if warnings:
        raise click.exceptions.Exit(1)
    click.echo("Every node counts its own ranks, as far as can be seen.")


def _render(servers: tuple[Server, ...], form: str) -> str:
    from trainshed.model.rank_table import render_a, render_b, render_c

    if form == "A":
        return render_a(servers)
    return render_b(servers, "job") if form == "B" else render_c(servers)


def _read_hccn(path: str) -> dict[int, str]:
    import re

    text = Path(path).read_text("utf-8", "replace")
    return {
        int(slot): address
        for slot, address in re.findall(r"^\s*address_(\d+)\s*=\s*(\S+)", text, re.MULTILINE)
    }
