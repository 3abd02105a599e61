"""More processes for the object store, for as long as one is not enough.

One process does what one core can. When that has been too little for some seconds, another one joins: a mate, which
takes connections from the same ports, and leaves again when it is no longer needed. So an idle platform stays small.

Clients keep their connections, and those lie with the process that took them. Therefore each process asks some of its
clients to connect anew when a mate has joined (`Connection: close` in their next answer, over TLS as well as without).
The index and the blobs are made for several processes in any case: runners and upkeep write there, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainshed.daemon.child_process import has_said_ready, start_child

if TYPE_CHECKING:
    from trainshed.api.obs.wire.server import Server

__all__ = ["Crew", "Pace", "choose_size", "mate_command"]

_LARGEST_DEFAULT = 8
_FIRST_DELAY = 5.0
_LONGEST_DELAY = 600.0
_TICKS = os.sysconf("SC_CLK_TCK")

_log = logging.getLogger("trainshed.store")


def choose_size(setting: int) -> int:
    """How many processes there may be: as many as the setting says, or half of the cores."""
    return max(1, setting or min(len(os.sched_getaffinity(0)) // 2, _LARGEST_DEFAULT))


@dataclass(frozen=True)
class Pace:
    """How often the load is looked at, how large it must be, and how long it must last."""

    look_seconds: float = 1.0
    # Parts of a core. Another one joins when each process uses more than the first; one leaves when the others could
    # do its work with each using less than the second.
    busy: float = 0.7
    quiet: float = 0.4
    busy_looks: int = 3
    quiet_seconds: float = 60.0


@dataclass
class _Mate:
    process: subprocess.Popen[bytes]
    ready_pipe: int
    started_at: float
    is_ready: bool = False
    is_leaving: bool = False

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        # One that has just died is noticed at the next look.
        with contextlib.suppress(OSError):
            self.process.stdin.write(f"{word}\n".encode())
            self.process.stdin.flush()


class Crew:
    """The mates of this process, which serves on the same ports itself. Used from one event loop."""

    def __init__(
        self,
        command: Sequence[str],
        server: Server,
        listeners: Sequence[socket.socket],
        most: int,
        pace: Pace | None = None,
    ) -> None:
        self._command = command
        self._server = server
        self._listeners = listeners
        self._most = most
        self._pace = pace or Pace()
        self._mates: list[_Mate] = []
        self._is_alone = True
        self._used = 0.0
        self._looked_at = 0.0
        self._busy_looks = 0
        self._quiet_since = 0.0
        self._delay = _FIRST_DELAY
        self._start_after = 0.0

    async def keep(self) -> None:
        """Look at the load, and let mates join and leave, until cancelled."""
        while self._most > 1:
            await asyncio.sleep(self._pace.look_seconds)
            self._bury_dead()
            self._adapt(*self._measure())
            if self._is_alone != (not self._mates):
                self._is_alone = not self._mates
                await self._server.accept(is_alone=self._is_alone)

    async def stop(self, seconds: float) -> None:
        """End all mates, which give their requests under way so many seconds."""
        for mate in self._mates:
            mate.tell("stop")
        until = time.monotonic() + seconds
        while any(mate.process.poll() is None for mate in self._mates) and time.monotonic() < until:
            await asyncio.sleep(0.02)
        for mate in self._mates:
            if mate.process.poll() is None:
                mate.process.kill()
            mate.process.wait()
            self._forget(mate)
        self._mates.clear()

    def _measure(self) -> tuple[float, float]:
        """The cores that all processes have used since the last look, and the time."""
        now = time.monotonic()
        used = time.process_time() + sum(_cpu_seconds(mate.process.pid) for mate in self._mates)
        # One that has left takes its seconds with it.
        busy = max(0.0, used - self._used) / max(now - self._looked_at, 1e-3) if self._looked_at else 0.0
        self._used, self._looked_at = used, now
        return busy, now

    def _adapt(self, busy: float, now: float) -> None:
        if any(not mate.is_ready for mate in self._mates):
            return
        present = [mate for mate in self._mates if not mate.is_leaving]
        size = 1 + len(present)
        self._busy_looks = self._busy_looks + 1 if busy > self._pace.busy * size else 0
        if not present or busy > self._pace.quiet * (size - 1):
            self._quiet_since = now
        if (
            self._busy_looks >= self._pace.busy_looks
            and 1 + len(self._mates) < self._most
            and self._server.connections > 1
            and now >= self._start_after
        ):
            self._busy_looks = 0
            self._call_mate(now)
        elif present and now - self._quiet_since >= self._pace.quiet_seconds:
            # The next one has to wait for half as long.
            self._quiet_since = now - self._pace.quiet_seconds / 2
            present[-1].is_leaving = True
            present[-1].tell("retire")
            _log.info("A process of the object store is no longer needed (left: %s).", size - 1)

    def _call_mate(self, now: float) -> None:
        numbers = [listener.fileno() for listener in self._listeners]
        command = [*self._command, "--listeners", ",".join(map(str, numbers))]
        try:
            process, ready_pipe = start_child(command, stdin=subprocess.PIPE, pass_fds=numbers)
        except OSError as error:
            self._put_off(now, f"could not be started: {error.strerror}")
            return
        mate = _Mate(process, ready_pipe, now)
        self._mates.append(mate)
        asyncio.get_running_loop().add_reader(ready_pipe, self._hear, mate)

    def _hear(self, mate: _Mate) -> None:
        is_ready = has_said_ready(mate.ready_pipe)
        self._forget(mate)
        if not is_ready:
            return
        mate.is_ready = True
        size = 1 + sum(not other.is_leaving for other in self._mates)
        _log.info("The object store is busy: %s processes serve it now.", size)
        self._server.share_out(size)
        for other in self._mates:
            if not other.is_leaving:
                other.tell(f"share {size}")

    def _forget(self, mate: _Mate) -> None:
        if mate.ready_pipe >= 0:
            asyncio.get_running_loop().remove_reader(mate.ready_pipe)
            os.close(mate.ready_pipe)
            mate.ready_pipe = -1

    def _bury_dead(self) -> None:
        for mate in [mate for mate in self._mates if mate.process.poll() is not None]:
            self._mates.remove(mate)
            self._forget(mate)
            if mate.process.stdin is not None:
                with contextlib.suppress(OSError):
                    mate.process.stdin.close()
            if not mate.is_leaving:
                now = time.monotonic()
                if now - mate.started_at > _LONGEST_DELAY:
                    self._delay = _FIRST_DELAY
                self._put_off(now, f"ended with exit code {mate.process.returncode}")

    def _put_off(self, now: float, how: str) -> None:
        _log.warning(
            "A further process of the object store %s; the next one not before %g s.", how, self._delay
        )
        self._start_after, self._delay = now + self._delay, min(2 * self._delay, _LONGEST_DELAY)


def mate_command(home: Path) -> list[str]:
    """How a mate is started."""
    return [sys.executable, "-m", "trainshed.daemon.store_mate", "--home", str(home)]


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS
    except (OSError, ValueError, IndexError):
        return 0.0
