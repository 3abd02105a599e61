"""The parent of the platform's processes: starts them, starts a dead one again, and stops them all.

It keeps nothing but process ids and imports the standard library only: it must stay small and never be the
part that fails. When it is killed, the kernel kills its children; runners are nobody's children and live on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainshed import __version__
from trainshed.daemon.child_process import has_said_ready, start_child
from trainshed.daemon.home_folder import HomeLock, load_settings, settings_environment
from trainshed.durable import replace_file
from trainshed.model.home import Home

__all__ = ["CHILDREN", "Supervisor", "main", "read_tail"]

# Name -> module. The order is that of the start.
CHILDREN = {
    "api": "trainshed.daemon.api_process",
    "store": "trainshed.daemon.store_process",
    "control": "trainshed.daemon.control_process",
    "fork-server": "trainshed.daemon.fork_server",
}
# Only where the settings name a port for it.
SSH_MODULE = "trainshed.daemon.ssh_process"

_FIRST_DELAY = 0.2
_LONGEST_DELAY = 30.0
# A child that did its work for so long was healthy: its next death starts again at the shortest delay.
_HEALTHY_SECONDS = 3.0
# A platform that never stood and whose child keeps dying is misconfigured: say so instead of trying for ever.
_FIRST_START_TRIES = 3
_GRACE_SECONDS = 10.0
_LARGEST_LOG = 20 * 1024 * 1024


@dataclass
class _Child:
    name: str
    module: str
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    ready: bool = False
    restarts: int = 0
    failures: int = 0
    delay: float = _FIRST_DELAY
    start_again_at: float = 0.0
    last_exit: str = ""
    ready_pipe: int = -1


@dataclass
class Supervisor:
    """Runs the platform of one home until it is told to stop."""

    home: Home
    environment: dict[str, str]
    facts: dict[str, Any] = field(default_factory=dict)
    say: Callable[[str], None] = lambda text: None
    on_ready: Callable[[], None] = lambda: None
    modules: dict[str, str] = field(default_factory=lambda: dict(CHILDREN))

    def __post_init__(self) -> None:
        self._children = [_Child(name, module) for name, module in self.modules.items()]
        self._stopping = False
        self._stood = False
        self._failed = False
        self._started_at = time.time()
        self._selector = selectors.DefaultSelector()

    def run(self) -> int:
        """Start the children and look after them; returns the exit code of the platform."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # Under nohup and in the background a closed terminal is nothing to us.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._ask_stop)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._selector.register(wake_read, selectors.EVENT_READ, None)
        for child in self._children:
            self._start(child)
        self._write_state()
        rotate_at = time.monotonic() + 60
        while not self._stopping:
            for key, _ in self._selector.select(self._next_timer()):
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake_read, 4096)
                else:
                    self._hear(key.data)
            self._reap()
            self._reap_strangers()
            now = time.monotonic()
            for child in self._children:
                if child.process is None and not self._stopping and now >= child.start_again_at:
                    child.restarts += 1
                    self._start(child)
                    self._write_state()
            if now >= rotate_at:
                rotate_at = now + 60
                for child in self._children:
                    self._rotate(child)
        self._stop_all()
        self.home.state.unlink(missing_ok=True)
        return 1 if self._failed else 0

    def _ask_stop(self, number: int, frame: object) -> None:
        self._stopping = True

    def _next_timer(self) -> float:
        waits = [child.start_again_at - time.monotonic() for child in self._children if child.process is None]
        return max(0.0, min([60.0, *waits]))

    def _log_file(self, child: _Child) -> Path:
        return self.home.logs / f"{child.name}.log"

    def _start(self, child: _Child) -> None:
        command = [sys.executable, "-m", child.module, "--home", str(self.home.path)]
        try:
            with self._log_file(child).open("ab") as log:
                child.process, child.ready_pipe = start_child(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self.environment,
                    cwd=self.home.path,
                )
        except OSError as fault:
            # No memory, no process ids, a full disk: the same as a child that died at once.
            self._died(child, f"could not start: {fault.strerror}")
            return
        child.started_at = time.monotonic()
        child.ready = False
        self._selector.register(child.ready_pipe, selectors.EVENT_READ, child)

    def _hear(self, child: _Child) -> None:
        """A child said that it is ready, or closed its pipe without a word because it died."""
        is_ready = has_said_ready(child.ready_pipe)
        self._forget_pipe(child)
        if not is_ready:
            return
        child.ready = True
        self._write_state()
        if not self._stood and all(other.ready for other in self._children):
            self._stood = True
            self._write_state()
            self.on_ready()
        elif self._stood:
            self.say(f"{child.name} is up again.")

    def _forget_pipe(self, child: _Child) -> None:
        if child.ready_pipe >= 0:
            self._selector.unregister(child.ready_pipe)
            os.close(child.ready_pipe)
            child.ready_pipe = -1

    def _reap(self) -> None:
        for child in self._children:
            if child.process is None or child.process.poll() is None:
                continue
            code = child.process.returncode
            child.process = None
            self._forget_pipe(child)
            if not self._stopping:
                self._died(
                    child, f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
                )

    def _reap_strangers(self) -> None:
        """As the first process of a container we inherit every orphan, runners among them: take their exits."""
        ours = {child.process.pid for child in self._children if child.process is not None}
        while os.getpid() == 1:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None or found.si_pid in ours:
                return
            os.waitpid(found.si_pid, 0)

    def _died(self, child: _Child, how: str) -> None:
        lived = time.monotonic() - child.started_at if child.started_at else 0.0
        healthy = child.ready and lived >= _HEALTHY_SECONDS
        child.failures = 1 if healthy else child.failures + 1
        # The exponent is bounded: a child that dies for days must not overflow the delay.
        child.delay = min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** min(child.failures - 1, 16))
        child.ready = False
        child.last_exit = how
        child.start_again_at = time.monotonic() + child.delay
        if not self._stood and child.failures >= _FIRST_START_TRIES:
            self.say(f"{child.name} {how}, {child.failures} times. The end of {self._log_file(child)}:")
            # The same traceback stands there once per try: the last one is enough.
            head, mark, last = read_tail(self._log_file(child), 8000).rpartition("Traceback (most recent")
            self.say((mark + last or head)[-3000:])
            self._failed = self._stopping = True
            return
        self.say(
            f"{child.name} {how}; starting it again in {child.delay:g} s. Its log: {self._log_file(child)}"
        )
        self._write_state()

    def _rotate(self, child: _Child) -> None:
        """Keep one older piece of a log that has grown large. Its writers append, so it can be cut in place."""
        log = self._log_file(child)
        with contextlib.suppress(OSError):
            if log.stat().st_size > _LARGEST_LOG:
                tail = log.with_suffix(".log.1")
                with log.open("rb") as source, tail.open("wb") as target:
                    while piece := source.read(1 << 20):
                        target.write(piece)
                os.truncate(log, 0)

    def _write_state(self) -> None:
        state = {
            **self.facts,
            "pid": os.getpid(),
            "version": __version__,
            "started_at": self._started_at,
            "ready": self._stood,
            "processes": [
                {
                    "name": child.name,
                    "pid": child.process.pid if child.process else 0,
                    "state": "ready"
                    if child.ready
                    else "starting"
                    if child.process
                    else "waiting to restart",
                    "restarts": child.restarts,
                    "last_exit": child.last_exit,
                }
                for child in self._children
            ],
        }
        # A full disk must not take the supervisor down: the state is only for `trainshed status`.
        with contextlib.suppress(OSError):
            replace_file(self.home.state, json.dumps(state).encode())

    def _stop_all(self) -> None:
        """SIGTERM to all, grace, SIGKILL to those that are left."""
        signal.set_wakeup_fd(-1)
        # A second Ctrl-C must not leave half of them behind: it only shortens the grace.
        deadline = [time.monotonic() + _GRACE_SECONDS]

        def hurry(number: int, frame: object) -> None:
            deadline[0] = 0.0

        signal.signal(signal.SIGINT, hurry)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        running = [child.process for child in self._children if child.process is not None]
        for process in running:
            process.terminate()
        for process in running:
            while process.poll() is None and time.monotonic() < deadline[0]:
                time.sleep(0.02)
        for process in running:
            if process.poll() is None:
                process.kill()
            process.wait()


def read_tail(path: Path, size: int = 2000) -> str:
    """The last lines of a log."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - size))
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


def main() -> int:
    """`python -m trainshed.daemon.supervisor`: started by `trainshed up`, which made the checks before."""
    parser = argparse.ArgumentParser(prog="trainshed.daemon.supervisor")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--lock-fd", type=int, required=True)
    parser.add_argument("--banner-fd", type=int, default=-1)
    options = parser.parse_args()
    home = Home(options.home)
    lock = HomeLock(options.lock_fd)
    os.set_inheritable(options.lock_fd, False)
    lock.sign()
    settings = load_settings(home, os.environ, {})
    banner = ""
    if options.banner_fd >= 0:
        with os.fdopen(options.banner_fd) as file:
            banner = file.read()
    else:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def say(text: str) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    supervisor = Supervisor(
        home=home,
        # Threads of a server would each get a memory pool of their own that is never given back.
        environment={"MALLOC_ARENA_MAX": "2", **os.environ, **settings_environment(settings)},
        facts={
            "host": settings.host,
            "port": settings.port,
            "obs_port": settings.obs_port,
            "tls": settings.serves_tls,
            "public_url": settings.public_url,
            "public_obs_url": settings.public_obs_url,
            "rehearse": settings.rehearse,
            "engine": settings.engine,
        },
        modules={**CHILDREN, **({"ssh": SSH_MODULE} if settings.ssh_port else {})},
        say=say,
        on_ready=lambda: say(banner) if banner else None,
    )
    code = supervisor.run()
    if banner and code == 0:
        say("Trainshed has stopped. Jobs that run go on; `trainshed up` finds them again.")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
