"""The tie between nodes on different machines: they begin together, by way of the platform."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainshed.model.home import RunFolder
from trainshed.runner.doorbell import ring_doorbell
from trainshed.runner.gang.gang import Gang
from trainshed.runner.remote.node_folder import bell_file, go_file, ready_file

__all__ = ["RemoteGang"]

_LOOK_SECONDS, _PATIENCE_SECONDS = 0.1, 5.0


class RemoteGang(Gang):
    """What this node knows of the others. That one of them has ended comes as a request to stop."""

    def __init__(self, folder: RunFolder, node: int) -> None:
        super().__init__(None, node)
        self.ending = None
        self._folder = folder

    def meet(self, check: Callable[[], None], say: Callable[[str], None]) -> None:
        """Wait until every node is ready to begin: a rank that starts alone would wait in vain for its peers."""
        self.say_ready()
        patience = time.monotonic() + _PATIENCE_SECONDS
        while not go_file(self._folder).exists():
            check()
            time.sleep(_LOOK_SECONDS)
            if time.monotonic() > patience:
                say("this node is ready and waits for the others")
                patience = float("inf")
        self.has_begun = True

    def say_ready(self) -> None:
        """This node has all it needs to begin."""
        ready_file(self._folder).touch()
        ring_doorbell(str(bell_file(self._folder)))
