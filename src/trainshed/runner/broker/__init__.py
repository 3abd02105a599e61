"""The broker: moves bytes between the store and a job's own folders, on behalf of the job's scripts."""

from __future__ import annotations

from trainshed.runner.broker.server import BROKER_PATH, Broker

__all__ = ["BROKER_PATH", "Broker"]
