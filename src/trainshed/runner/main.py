"""The runner's entry: one detached process per node of an attempt."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
import traceback
from pathlib import Path

from trainshed.model.attempt import NodeReport
from trainshed.model.home import RunFolder
from trainshed.model.late_pattern import compile_patterns
from trainshed.model.launch_plan import NodeLaunch, learn_types
from trainshed.runner.gang import is_gang, join_gang
from trainshed.runner.late_modules import load_rest
from trainshed.runner.node_run import NodeRun
from trainshed.runner.salvage import salvage_node
from trainshed.runner.sandbox import claim_namespace
from trainshed.runner.sandbox.init_program import compile_init
from trainshed.runner.site import Site, read_launch, read_site

__all__ = ["main", "run", "warm_up"]


# What some jobs load when they need it.
_LATE = (
    "runner.environment.build",
    "runner.host_folder",
    "runner.inventory",
    "store.embedded.store",
    "store.staged_tree",
)


def warm_up() -> None:
    """Load what a run loads late: a process that forks many runners does it once for all of them."""
    load_rest()
    for name in _LATE:
        importlib.import_module(f"trainshed.{name}")
    compile_patterns()
    learn_types(NodeLaunch, Site, NodeReport)
    compile_init()


def run(folder: Path, lock: int, *, salvage: bool = False) -> None:
    """Run one node to its end. The lock's descriptor stays open until the process is gone."""
    os.set_inheritable(lock, False)
    os.umask(0o022)
    # A hang-up of the terminal that once started the platform must not reach jobs; SIGTERM is a stop.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run_folder = RunFolder(folder)
    try:
        # First of all: a private namespace can only be had while there is one thread.
        if salvage:
            claim_namespace()
            salvage_node(run_folder)
            return
        launch = read_launch(run_folder)
        gang = None
        if is_gang(launch):
            gang = join_gang(run_folder, launch, read_site(run_folder))
        else:
            claim_namespace()
        NodeRun(run_folder, launch, gang).walk()
    except Exception:
        with run_folder.runner_log.open("a", encoding="utf-8") as log:
            log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} the runner failed\n{traceback.format_exc()}")
        raise


def main(arguments: list[str]) -> int:
    """`python -m trainshed.runner.main [--salvage] FOLDER --lock FD`: detach, then run."""
    salvage = "--salvage" in arguments
    rest = [argument for argument in arguments if argument != "--salvage"]
    if len(rest) != 3 or rest[1] != "--lock":
        sys.stderr.write("usage: python -m trainshed.runner.main [--salvage] FOLDER --lock FD\n")
        return 2
    if os.fork():
        # The caller waits for this process only; the child belongs to nobody from here on.
        os._exit(0)
    os.setsid()
    run(Path(rest[0]), int(rest[2]), salvage=salvage)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
