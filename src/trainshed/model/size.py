"""Sizes and counts, as people read them."""

from __future__ import annotations

__all__ = ["count_cores", "count_files", "format_size"]


def format_size(size: float) -> str:
    """`512 B`, `1.5 MB`: powers of 1000, as disks are sold."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def count_files(number: int) -> str:
    """`1 file`, `2 files`."""
    return "1 file" if number == 1 else f"{number} files"


def count_cores(number: float) -> str:
    """`1 core`, `0.5 cores`, `2 cores`."""
    return "1 core" if number == 1 else f"{number:g} cores"
