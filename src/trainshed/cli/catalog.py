"""What the platform offers: flavors, engines, nodes."""

from __future__ import annotations

import click

from trainshed.cli.connection import open_client
from trainshed.cli.presentation import json_option, print_json, print_table

__all__ = ["engines", "flavors", "nodes"]

_pool_option = click.option("--pool", default="", help="Only those of this pool.")


@click.command()
@_pool_option
@json_option
def flavors(pool: str, as_json: bool) -> None:
    """List what a node of a job can get (`--flavor`) in each pool (`--pool`).

    The same name can mean other cores and memory in another pool. Jobs that name no pool run in the first one.
    """
    with open_client() as client:
        found = client.flavors(pool)
    if as_json:
        print_json(found)
        return
    print_table(
        ("FLAVOR", "POOL", "DEVICES", "CORES", "MEMORY", "WHAT"),
        [
            (
                flavor.name,
                flavor.pool,
                str(flavor.devices or "-"),
                f"{flavor.cpus:g}" if flavor.cpus else "shared",
                f"{flavor.memory_mb / 1024:.3g} GiB" if flavor.memory_mb else "shared",
                flavor.description,
            )
            for flavor in found
        ],
        elastic="WHAT",
        empty="There are no flavors: no machine has reported yet.",
    )


@click.command()
@json_option
def engines(as_json: bool) -> None:
    """List the preset environments (`--engine`)."""
    with open_client() as client:
        found = client.engines()
    if as_json:
        print_json(found)
        return
    print_table(
        ("ENGINE", "PYTHON", "PACKAGES", "WHAT"),
        [
            (
                engine.name,
                engine.python or "platform's",
                ", ".join(engine.packages) or "-",
                engine.description,
            )
            for engine in found
        ],
        elastic="PACKAGES",
        empty="There are no engines.",
    )


@click.command()
@_pool_option
@json_option
def nodes(pool: str, as_json: bool) -> None:
    """List the machines that run jobs, pool by pool; one that belongs to several is listed for each."""
    with open_client() as client:
        found = client.nodes(pool)
    if as_json:
        print_json(found)
        return
    print_table(
        ("NODE", "STATE", "ENGINE", "POOL", "CORES", "MEMORY", "DEVICES"),
        [
            (
                node.name,
                node.state + (f" ({node.reason})" if node.reason else ""),
                node.engine,
                node.pool,
                f"{node.cpus:g}",
                f"{node.memory_mb / 1024:.3g} GiB",
                _devices(node.devices),
            )
            for node in found
        ],
        elastic="NODE",
        empty="No machine has reported yet.",
    )


def _devices(devices: tuple[dict[str, object], ...]) -> str:
    kinds: dict[str, int] = {}
    for device in devices:
        label = f"{device.get('kind')}{' (pretend)' if device.get('pretend') else ''}"
        kinds[label] = kinds.get(label, 0) + 1
    return ", ".join(f"{count} x {kind}" for kind, count in kinds.items()) or "-"
