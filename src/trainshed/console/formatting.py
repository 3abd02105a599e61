"""Times and sizes as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["format_bytes", "format_duration", "format_moment", "format_timestamp"]


def format_duration(seconds: float) -> str:
    """A length of time in at most two units: `42s`, `3m 05s`, `2h 10m`, `5d 3h`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d {whole % 86400 // 3600}h"


def format_timestamp(seconds: float) -> str:
    """A moment for machines, in universal time; the browser shows it in its own time zone."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_moment(seconds: float) -> str:
    """A moment for people without JavaScript: universal time, and it says so."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def format_bytes(size: float) -> str:
    """A size: `512 B`, `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
