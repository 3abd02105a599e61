"""The process that starts runners quickly: it has imported all they need, and forks.

It keeps no state. When it is dead, the local engine starts runners directly, only slower; the runners that it
forked are in sessions of their own and are not harmed.
"""

from __future__ import annotations

import array
import contextlib
import gc
import logging
import os
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from trainshed.daemon.process import begin
from trainshed.engines.local.fork_request import GO, LONGEST_REQUEST, open_address
from trainshed.model.home import Home, RunFolder

__all__ = ["ForkServer", "main"]

_log = logging.getLogger("trainshed.fork_server")


class ForkServer:
    """Listens in the home's run folder and turns each request into a detached runner."""

    def __init__(self, home: Home, run: Callable[[Path, int], object]) -> None:
        self._run = run
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        home.fork_socket.unlink(missing_ok=True)
        with open_address(home.fork_socket) as address:
            self._listener.bind(address)
        home.fork_socket.chmod(0o600)
        self._listener.listen(128)

    def serve_forever(self) -> None:
        """Answer requests until the process is ended."""
        while True:
            connection, _ = self._listener.accept()
            with connection:
                try:
                    self.serve_one(connection)
                except OSError as fault:
                    _log.warning("A request failed: %s", fault)

    def serve_one(self, connection: socket.socket) -> None:
        """Read one request and fork a runner for it; the runner answers over the same connection."""
        connection.settimeout(5.0)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, _ = struct.unpack("3i", credentials)
        if uid != os.geteuid():
            _log.warning("A request of user %s was refused.", uid)
            return
        data, ancillary, flags, _ = connection.recvmsg(LONGEST_REQUEST, socket.CMSG_SPACE(16))
        descriptors = array.array("i")
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
        try:
            if len(descriptors) != 1 or not data or flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC):
                _log.warning("A request was not understood.")
                return
            run_folder = Path(os.fsdecode(data))
            first = os.fork()
            if first == 0:
                self._become_runner(connection, run_folder, descriptors[0])
            os.waitpid(first, 0)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _become_runner(self, connection: socket.socket, run_folder: Path, lock_fd: int) -> None:
        """In the forked child: detach, wait for the word to go, and run."""
        code = 1
        try:
            os.setsid()
            if os.fork():
                os._exit(0)
            self._listener.close()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            connection.settimeout(30.0)
            connection.send(str(os.getpid()).encode())
            if connection.recv(8) != GO:
                os._exit(0)
            connection.close()
            os.chdir(run_folder)
            _redirect_output(RunFolder(run_folder).runner_log)
            self._run(run_folder, lock_fd)
            code = 0
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def _redirect_output(log: Path) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(nothing, 0)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(nothing)
    os.close(file)


def main() -> int:
    """Import what runners need, then serve until SIGTERM."""
    process = begin("fork-server")
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(0))
    from trainshed.runner.main import run, warm_up

    warm_up()
    server = ForkServer(process.home, run)
    # Move all that exists now out of the collector's sight: collecting it in a fork would copy every page.
    gc.collect()
    gc.freeze()
    process.say_ready()
    server.serve_forever()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
