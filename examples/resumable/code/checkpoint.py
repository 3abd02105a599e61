"""What the three scripts have in common: where their checkpoint lies, and when they must hurry."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

# The platform brings this folder home at the end of an attempt, and puts it there again for the next one.
FOLDER = Path(os.environ.get("TRAINSHED_CHECKPOINT", "checkpoints"))


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under another name and rename it: whoever dies in between leaves the old one whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"part-{path.name}")
    write(part)
    os.replace(part, path)


class Hurry:
    """Notes that the platform wants an end (SIGTERM) or warns of the time limit (SIGUSR1). The loop looks at it."""

    def __init__(self) -> None:
        self.must_save = self.must_leave = False
        signal.signal(signal.SIGUSR1, self._warn)
        signal.signal(signal.SIGTERM, self._leave)

    def _warn(self, *_: object) -> None:
        self.must_save = True

    def _leave(self, *_: object) -> None:
        self.must_save = self.must_leave = True
