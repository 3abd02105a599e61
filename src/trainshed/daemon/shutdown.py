"""Stopping the platform of a home."""

from __future__ import annotations

import os
import signal
import time

from trainshed.daemon.home_folder import find_holder
from trainshed.model.errors import Unavailable
from trainshed.model.home import Home

__all__ = ["stop_platform"]


def stop_platform(home: Home, *, timeout: float = 20.0) -> int | None:
    """Stop the platform and wait until it is gone; returns the process id it had, None if it did not run.

    A supervisor that does not end in time is killed, and the kernel takes its children with it.
    """
    holder = find_holder(home)
    if holder is None:
        return None
    deadline = time.monotonic() + timeout
    while holder == 0 and time.monotonic() < deadline:
        # It has the lock but has not signed it yet.
        time.sleep(0.05)
        holder = find_holder(home)
        if holder is None:
            return None
    if not holder:
        raise Unavailable(
            f"The process that runs {home.path} is not known.",
            hint="`fuser` on run/up.lock of the home shows it.",
        )
    for number, until in ((signal.SIGTERM, deadline), (signal.SIGKILL, deadline + 10)):
        try:
            # A descriptor of the process, so that no stranger who gets its number later is hit.
            descriptor = os.pidfd_open(holder)
        except ProcessLookupError:
            descriptor = -1
        try:
            if find_holder(home) != holder:
                return holder
            if descriptor >= 0:
                signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            raise Unavailable(
                f"The platform (pid {holder}) belongs to another user.", hint="Run this command as that user."
            ) from None
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        while time.monotonic() < until:
            if find_holder(home) is None:
                return holder
            time.sleep(0.05)
    raise Unavailable(f"The platform (pid {holder}) does not stop.", hint="See the host's process list.")
