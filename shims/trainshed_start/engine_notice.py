"""Says which engine a job asked for and which one runs, when they differ."""

import os

from trainshed_start.hooks import say

__all__ = ["change"]


def change(name, module):
    """Compare what was asked with what was imported."""
    asked = os.environ.get("TRAINSHED_ENGINE_ASKED", "")
    version = getattr(module, "__version__", "")
    if asked and asked.lower() != os.environ.get("TRAINSHED_ENGINE", "").lower():
        say(f"asked for the engine {asked}; {name} {version} runs", "trainshed")
