"""Trainshed: a self-hosted AI training platform."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Client", "__version__", "log_metric"]

if TYPE_CHECKING:
    from trainshed.client import Client
    from trainshed.client.metrics import log_metric

_LAZY = {"Client": "trainshed.client", "log_metric": "trainshed.client.metrics"}


def __getattr__(name: str) -> Any:
    # Loaded on first use: `trainshed --help` and the runner must not pay for the HTTP client.
    if name not in _LAZY:
        raise AttributeError(f"module 'trainshed' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(_LAZY[name]), name)
