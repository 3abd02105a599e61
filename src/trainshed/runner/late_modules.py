"""What a run loads only when it needs it: a job that is over within a second has no use for most of it."""

from __future__ import annotations

import importlib

__all__ = ["load_rest"]

_REST = (
    "model.diagnosis",
    "model.metric_lines",
    "runner.broker.operations",
    "runner.checkpoints",
    "runner.closing",
    "runner.environment.index",
    "runner.launcher_logs",
    "runner.live_export",
    "runner.metric_tail",
    "runner.resting_place",
    "runner.training_watch",
    "store.transfer",
)


def load_rest() -> None:
    """Load all of it: nothing may be missing at the end of a long run that was there at its start."""
    for name in _REST:
        importlib.import_module(f"trainshed.{name}")
