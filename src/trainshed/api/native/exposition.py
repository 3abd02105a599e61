"""Lines of the Prometheus text format."""

from __future__ import annotations

__all__ = ["CONTENT_TYPE", "sample"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def sample(name: str, value: float, **labels: str) -> str:
    """One line: the metric's name, its labels and its value."""
    inside = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {value}" if inside else f"{name} {value}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
