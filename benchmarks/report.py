"""How benchmarks tell what they measured: medians, a table for people, JSON for machines."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "add_json_option",
    "describe_machine",
    "percentile",
    "print_table",
    "say",
    "summarize",
    "write_json",
]


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]


def summarize(values: Sequence[float]) -> dict[str, float]:
    """Median, 90th percentile, smallest and largest of some measurements."""
    return {
        "median": statistics.median(values),
        "p90": percentile(values, 0.9),
        "min": min(values),
        "max": max(values),
        "count": len(values),
    }


def describe_machine() -> dict[str, Any]:
    """The machine in general terms: what a reader needs to judge the numbers, and nothing that names it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30),
        "system": _distribution(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def print_table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on standard output: the first column to the left, the others to the right."""
    lines = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    print(f"\n{title}")
    for number, line in enumerate(lines):
        cells = [
            line[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
        ]
        print("  " + "  ".join(cells).rstrip())
        if number == 0:
            print("  " + "  ".join("-" * width for width in widths))
    sys.stdout.flush()


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"
    return "" if value is None else str(value)


def say(text: str) -> None:
    """Tell how far the benchmark is."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """The option that every benchmark has."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements there as well")


def write_json(path: Path | None, name: str, machine: dict[str, Any], results: dict[str, Any]) -> None:
    """Write the measurements, if a file was named."""
    if path is None:
        return
    document = {
        "benchmark": name,
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine,
        "results": results,
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
