"""`trainshed metrics`: a table and a small curve for each metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import click

from trainshed.cli.connection import open_client
from trainshed.cli.presentation import json_option, print_json, print_table

__all__ = ["draw_sparkline", "metrics"]

_BLOCKS = "▁▂▃▄▅▆▇█"


@click.command()
@click.argument("job")
@click.option("--name", "names", multiple=True, help="Only this metric; may be given several times.")
@click.option("--points", is_flag=True, help="Print every point.")
@click.option("--system", is_flag=True, help="Use of cores, memory and devices in place of the job's own.")
@click.option("--attempt", type=click.IntRange(1), help="Of this attempt in place of the last one.")
@json_option
def metrics(
    job: str, names: tuple[str, ...], points: bool, system: bool, attempt: int | None, as_json: bool
) -> None:
    """Show the metrics of a JOB: loss, accuracy, throughput and what it logged itself."""
    with open_client() as client:
        found = client.get(job)
        series = (
            client.system_metrics(found.id, attempt=attempt)
            if system
            else client.metrics(found.id, list(names) or None, limit=2000, attempt=attempt)
        )
    if system and names:
        series = [item for item in series if item.name in names]
    if as_json:
        print_json(series)
        return
    empty = (
        f"Job {found.name} has no metrics yet. A script writes them with trainshed.log_metric(name, value)."
    )
    if points:
        print_table(
            ("METRIC", "STEP", "EPOCH", "RANK", "VALUE"),
            [
                (item.name, _text(point.step), _text(point.epoch), str(point.rank), f"{point.value:.6g}")
                for item in series
                for point in item.points
            ],
            elastic="METRIC",
            empty=empty,
        )
        return
    print_table(
        ("METRIC", "POINTS", "FIRST", "LAST", "MIN", "MAX", "CURVE"),
        [(item.name, *_summary([point.value for point in item.points], item.count)) for item in series],
        elastic="METRIC",
        empty=empty,
    )


def _summary(values: Sequence[float], count: int) -> tuple[str, ...]:
    finite = [value for value in values if math.isfinite(value)]
    low, high = (f"{min(finite):.4g}", f"{max(finite):.4g}") if finite else ("-", "-")
    return (
        str(count or len(values)),
        f"{values[0]:.4g}",
        f"{values[-1]:.4g}",
        low,
        high,
        draw_sparkline(values),
    )


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def draw_sparkline(values: Sequence[float], width: int = 20) -> str:
    """A curve of one line. A value that is no number is shown as `?`: a diverged loss must be seen."""
    if not values:
        return ""
    if len(values) > width:
        edges = [round(i * len(values) / width) for i in range(width + 1)]
        # The mean of each slice; one that holds a value that is no number shows it.
        values = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return "?" * len(values)
    low, span = min(finite), max(finite) - min(finite)
    top = len(_BLOCKS) - 1
    return "".join(
        (
            "?"
            if not math.isfinite(value)
            else _BLOCKS[round((value - low) / span * top) if span else top // 2]
        )
        for value in values
    )
