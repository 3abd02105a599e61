"""Processes of the platform, as the one that starts them sees them: begun, and ready when they say so."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Any

__all__ = ["has_said_ready", "start_child"]


def start_child(
    command: Sequence[str], *, pass_fds: Sequence[int] = (), **options: Any
) -> tuple[subprocess.Popen[bytes], int]:
    """Start one: it dies with this process, and says that it is ready through the pipe that comes back with it.

    `options` are those of Popen. The pipe is the caller's to close; where nothing could be started, none is left.
    """
    ready_read, ready_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    line = [*command, "--parent", str(os.getpid()), "--ready-fd", str(ready_write)]
    try:
        return subprocess.Popen(line, pass_fds=[ready_write, *pass_fds], **options), ready_read
    except OSError:
        os.close(ready_read)
        raise
    finally:
        os.close(ready_write)


def has_said_ready(pipe: int) -> bool:
    """What a pipe that can be read tells: the word of a ready process, or the silence of one that died."""
    try:
        return bool(os.read(pipe, 16))
    except OSError:
        return False
