"""The Python client of the native API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainshed.client.client import Client

__all__ = ["Client"]


def __getattr__(name: str) -> Any:
    # `trainshed --help` reads the connection module of this package and must not pay for the rest.
    if name != "Client":
        raise AttributeError(f"module 'trainshed.client' has no attribute '{name}'")
    from trainshed.client.client import Client

    return Client
