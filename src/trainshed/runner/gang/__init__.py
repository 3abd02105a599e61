"""Nodes of one job that share a machine: their common network, their start together, their end together."""

from __future__ import annotations

from trainshed.runner.gang.gang import Gang, is_gang, join_gang

__all__ = ["Gang", "is_gang", "join_gang"]
