"""Processes that the waiting process of a node forks: each does one thing and ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable

__all__ = ["fork_child"]

_PR_SET_PDEATHSIG = 1


def fork_child(
    work: Callable[[], int], *, dies_with_parent: bool = False, held: Iterable[signal.Signals] = ()
) -> int:
    """A child that does the work and ends with its result. Signals that are `held` wait in it until it takes them."""
    parent = os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pid
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if dies_with_parent:
            _die_with_parent(parent)
        code = work()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _die_with_parent(parent: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
