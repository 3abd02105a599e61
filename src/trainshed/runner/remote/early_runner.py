"""The runner's process: begun before anybody knows what to run, so that its code is loaded when that is known."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from pathlib import Path

from trainshed.model.home import RunFolder
from trainshed.runner.remote.child import fork_child

__all__ = ["EarlyRunner", "keep_what_is_loaded"]


class EarlyRunner:
    """A process that loads the runner's code and waits for its folder; without one it ends."""

    def __init__(self) -> None:
        reader, self._writer = os.pipe()
        # What asks it to end while it loads is heard when it can obey.
        self.pid = fork_child(
            lambda: _load_and_run(reader, self._writer), dies_with_parent=True, held=(signal.SIGTERM,)
        )
        os.close(reader)

    def begin(self, folder: RunFolder) -> None:
        """Let it run a node. It finds packages where this process finds them."""
        try:
            with os.fdopen(self._writer, "w", encoding="utf-8") as pipe:
                json.dump({"folder": str(folder.path), "path": sys.path}, pipe)
        except BrokenPipeError:
            # It is dead already; whoever waits for it will see that.
            pass

    def forget(self) -> None:
        """Nothing is to be run: let it end."""
        os.close(self._writer)


def keep_what_is_loaded() -> None:
    """Look for garbage again, but never in what is there by now."""
    gc.freeze()
    gc.enable()


def _load_and_run(reader: int, writer: int) -> int:
    os.close(writer)
    os.umask(0o022)
    from trainshed.model.launch_plan import NodeLaunch, learn_types
    from trainshed.runner.node_run import NodeRun
    from trainshed.runner.sandbox import claim_namespace
    from trainshed.runner.sandbox.init_program import compile_init
    from trainshed.runner.site import Site, read_launch

    learn_types(NodeLaunch, Site)
    compile_init()
    keep_what_is_loaded()
    with os.fdopen(reader, encoding="utf-8") as pipe:
        said = pipe.read()
    if not said:
        return 0
    # A private namespace can only be had while there is one thread, and has the mounts of this moment.
    claim_namespace()
    given = json.loads(said)
    sys.path[:] = given["path"]
    folder = RunFolder(Path(given["folder"]))
    launch = read_launch(folder)
    gang = None
    if launch.node_count > 1:
        from trainshed.runner.remote.remote_gang import RemoteGang

        gang = RemoteGang(folder, launch.node_index)
    NodeRun(folder, launch, gang).walk()
    return 0
