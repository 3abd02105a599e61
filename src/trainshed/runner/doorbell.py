"""A FIFO that wakes whoever sleeps at it: the control loop, and the courier of a node elsewhere."""

from __future__ import annotations

import os
import select
from pathlib import Path

__all__ = ["Doorbell", "ring_doorbell"]


class Doorbell:
    """The side that listens."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.mkfifo(path, 0o600)
        except FileExistsError:
            pass
        # Opened for both directions: a FIFO without a writer would be readable all the time.
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def wait(self, seconds: float) -> None:
        """Sleep until somebody rings, at most so long."""
        select.select([self._descriptor], [], [], seconds)
        try:
            while os.read(self._descriptor, 4096):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Stop listening."""
        os.close(self._descriptor)


def ring_doorbell(path: str) -> None:
    """Wake whoever listens there, if anybody does; they also look by themselves, so a missed ring costs only time."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(descriptor, b"!")
    except OSError:
        pass
    finally:
        os.close(descriptor)
