"""What every process of the platform does first: settings, logging, and dying with its supervisor."""

from __future__ import annotations

import argparse
import ctypes
import logging
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from trainshed.daemon.home_folder import load_settings
from trainshed.model.home import Home
from trainshed.model.settings import Settings

__all__ = ["PlatformProcess", "begin"]

_PR_SET_PDEATHSIG = 1


@dataclass
class PlatformProcess:
    """One of the processes that `trainshed up` starts."""

    home: Home
    settings: Settings
    ready_fd: int = -1
    # Ports that another process has opened for this one.
    listeners: tuple[int, ...] = ()

    def say_ready(self) -> None:
        """Tell the supervisor that this process does its work from now on."""
        if self.ready_fd >= 0:
            try:
                os.write(self.ready_fd, b"ready")
            except OSError:
                pass
            os.close(self.ready_fd)
            self.ready_fd = -1


def begin(name: str) -> PlatformProcess:
    """Read the command line and the settings, and set up logging."""
    parser = argparse.ArgumentParser(prog=f"trainshed {name}")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--parent", type=int, default=0)
    parser.add_argument("--ready-fd", type=int, default=-1)
    parser.add_argument("--listeners", default="")
    options = parser.parse_args()
    if options.parent:
        die_with(options.parent)
    listeners = tuple(map(int, filter(None, options.listeners.split(","))))
    for number in (options.ready_fd, *listeners):
        if number >= 0:
            os.set_inheritable(number, False)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    # One line per request of a client library is noise here.
    for noisy in ("httpx", "alembic", "alembic.runtime.migration", "_granian"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    home = Home(options.home)
    return PlatformProcess(home, load_settings(home, os.environ, {}), options.ready_fd, listeners)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, however it dies."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        # It died before the line above.
        os._exit(1)
