"""How the command line shows things: tables of at most 80 columns, JSON, times and sizes in words."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

import click

__all__ = [
    "format_age",
    "format_duration",
    "format_time",
    "json_option",
    "print_fields",
    "print_json",
    "print_table",
    "style_phase",
]

_PHASE_STYLES = {
    "Running": "cyan",
    "Completed": "green",
    "Failed": "red",
    "Abnormal": "red",
    "Terminated": "yellow",
    "Terminating": "yellow",
}

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def print_json(value: Any) -> None:
    """Print data as JSON; dataclasses become objects."""
    click.echo(json.dumps(_plain(value), indent=2, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, elastic: str, empty: str) -> None:
    """Print rows in columns. Where the window is too narrow, the elastic column is cut."""
    cells = [list(row) for row in rows]
    if not cells:
        click.echo(empty, err=True)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    fitting = _fit(columns, cells, columns.index(elastic), _width())
    for row in fitting:
        table.add_row(*(Text(cell, style=_PHASE_STYLES.get(cell, "")) for cell in row))
    # Never narrower than its content: a window may break a line, but an id that is cut is lost.
    needed = sum(_column_widths(columns, fitting)) + 2 * len(columns)
    Console(width=needed, highlight=False).print(table)


def _width() -> int:
    """The width of the window; what goes into a file or another program has no width."""
    import shutil

    return shutil.get_terminal_size((100_000, 24)).columns


def _column_widths(columns: Sequence[str], rows: list[list[str]]) -> list[int]:
    from rich.cells import cell_len

    return [
        max(cell_len(text) for text in (column, *(row[i] for row in rows)))
        for i, column in enumerate(columns)
    ]


def _fit(columns: Sequence[str], rows: list[list[str]], elastic: int, width: int) -> list[list[str]]:
    """Cut the elastic column so that the others stay whole: an id or a phase that is cut is of no use."""
    from rich.cells import cell_len, set_cell_size

    widths = _column_widths(columns, rows)
    room = max(8, width - sum(widths) + widths[elastic] - 2 * len(columns))
    if widths[elastic] <= room:
        return rows
    for row in rows:
        if cell_len(row[elastic]) > room:
            row[elastic] = set_cell_size(row[elastic], room - 1).rstrip() + "…"
    return rows


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print labelled values below each other, leaving out the empty ones."""
    shown = [(label, value) for label, value in fields if value]
    width = max((len(label) for label, _ in shown), default=0)
    for label, value in shown:
        first, *rest = value.splitlines() or [""]
        click.echo(click.style(label.ljust(width), bold=True) + "  " + first)
        for line in rest:
            click.echo(" " * (width + 2) + line)


def style_phase(phase: str) -> str:
    """A phase in its colour, where the terminal has colours."""
    colour = _PHASE_STYLES.get(phase)
    return click.style(phase, fg=colour) if colour else phase


def format_duration(seconds: float | None) -> str:
    """`8.4 s`, `3m 20s`, `2h 05m` or `3d 4h`."""
    if seconds is None:
        return ""
    seconds = max(0.0, seconds)
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d {whole % 86400 // 3600}h"


def format_age(moment: float | None, now: float | None = None) -> str:
    """How long ago a moment was: `12s`, `5m`, `3h`, `2d`."""
    if moment is None:
        return ""
    seconds = max(0, int((time.time() if now is None else now) - moment))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def format_time(moment: float | None) -> str:
    """A moment in the local time zone."""
    if moment is None:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def warn(text: str) -> None:
    """A line on the error stream that is not an error."""
    click.secho(text, err=True, fg="yellow", color=None if sys.stderr.isatty() else False)
