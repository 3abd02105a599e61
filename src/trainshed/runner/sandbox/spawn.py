"""Starts the program that makes a sandbox, as the user and in the network that the job is to have."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path

from trainshed.runner.sandbox import namespace

__all__ = ["open_log", "spawn", "wait_readable"]

# Meant for a job's own processes when a scheduler sends them to all. The program that holds the sandbox must not
# die of them: its death is that of all inside, without a moment to write a checkpoint.
_FOR_THE_JOB = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


def spawn(
    command: list[str],
    *,
    kept: list[int],
    output: int,
    owner: tuple[int, int] | None,
    network: int = -1,
) -> subprocess.Popen[bytes]:
    """Start a program that keeps some descriptors, as `owner` (uid, gid) if given.

    With `network`, a descriptor, it runs in that network. Its process dies with the thread that calls this
    if it asks the kernel for that, as bubblewrap does.
    """

    def enter() -> None:
        # Only with our own rights may it enter the network; it gives them up right after.
        namespace.join_network(network)
        if owner is not None:
            os.setgroups([])
            os.setresgid(owner[1], owner[1], owner[1])
            os.setresuid(owner[0], owner[0], owner[0])

    user = owner if network < 0 else None
    # Blocked signals stay blocked across exec; init takes them up again, and our own wait until we are done.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_JOB)
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=kept,
            env={},
            cwd="/",
            user=user[0] if user else None,
            group=user[1] if user else None,
            extra_groups=[] if user else None,
            start_new_session=True,
            preexec_fn=enter if network >= 0 else None,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def wait_readable(descriptor: int, seconds: float | None) -> bool:
    """Wait until a descriptor has something to read."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(None if seconds is None else max(0, int(seconds * 1000))))


def open_log(path: Path) -> int:
    """The spool file of a rank, made if needed, for appending only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)
