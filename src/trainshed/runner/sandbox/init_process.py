"""Init as the runner sees it: a process that it starts, talks with over a socket, and ends."""

from __future__ import annotations

import json
import marshal
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

from trainshed.model.errors import HostUnfit
from trainshed.runner.sandbox import bubblewrap
from trainshed.runner.sandbox.init_program import INIT_PROGRAM, compile_init
from trainshed.runner.sandbox.spawn import spawn, wait_readable
from trainshed.runner.sandbox.spec import SandboxSpec
from trainshed.runner.sandbox.stage import Binding, owner_of

__all__ = ["InitProcess"]

# A busy machine takes its time; a program that fails is noticed at once.
START_SECONDS = 120.0
_END_SECONDS = 10.0


class InitProcess:
    """The first process of one sandbox."""

    def __init__(self, spec: SandboxSpec) -> None:
        # As the host numbers it.
        self.pid = 0
        self._spec = spec
        self._process: subprocess.Popen[bytes] | None = None
        self._is_walled = False
        self._control, self._theirs = socket.socketpair()
        self._errors = os.memfd_create("sandbox-errors", os.MFD_CLOEXEC)
        self._pidfd = -1
        self._received = b""

    # -- its beginning

    def start(self, wall: tuple[str, list[Binding]] | None, given: list[int]) -> None:
        """Start it, with the descriptors that it is given, behind a wall (bubblewrap's path, what the job sees) or not.

        It does nothing before its plan comes.
        """
        kept = [self._theirs.fileno(), *given]
        info_read, info_write = os.pipe()
        opened = [info_read, info_write]
        try:
            if wall is not None:
                self._is_walled = True
                options = bubblewrap.build_arguments(self._spec, wall[1], info_write)
                listing = _hold(
                    "sandbox-options", b"".join(os.fsencode(option) + b"\0" for option in options)
                )
                opened.append(listing)
                command = [wall[0], "--args", str(listing), *self._list_command(INIT_PROGRAM)]
                kept += [info_write, listing]
            else:
                program = _hold("sandbox-init", compile_init())
                opened.append(program)
                command = [*self._list_command(f"/proc/self/fd/{program}"), str(program)]
                kept += [program]
            self._process = spawn(
                command,
                kept=kept,
                output=self._errors,
                owner=owner_of(self._spec),
                network=self._spec.shared_network if self._is_walled and self._spec.network != "open" else -1,
            )
            os.close(opened.pop(1))
            self._theirs.close()
            self.pid = self._read_pid(info_read) if self._is_walled else self._process.pid
        except (OSError, subprocess.SubprocessError) as error:
            reason = str(error)
            if isinstance(error, OSError):
                reason = f"{error.filename or (wall[0] if wall else sys.executable)}: {error.strerror}"
            raise self.explain_failure(reason) from error
        finally:
            for descriptor in opened:
                os.close(descriptor)
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except OSError:
            self._pidfd = -1

    def _list_command(self, program: str) -> list[str]:
        return [os.path.realpath(sys.executable), "-I", "-S", program, str(self._theirs.fileno())]

    def _read_pid(self, info: int) -> int:
        """The pid of init, as bubblewrap tells it once the namespaces exist."""
        data = b""
        deadline = time.monotonic() + START_SECONDS
        while b"}" not in data:
            if not wait_readable(info, deadline - time.monotonic()):
                raise self.explain_failure("bubblewrap does not answer")
            piece = os.read(info, 4096)
            if not piece:
                raise self.explain_failure()
            data += piece
        return int(json.loads(data)["child-pid"])

    def explain_failure(self, reason: str = "") -> HostUnfit:
        """The error for a sandbox that did not start; without a reason, what its programs said."""
        if self._process is not None and not reason:
            try:
                self._process.wait(2)
            except subprocess.TimeoutExpired:
                pass
        return HostUnfit(
            f"The sandbox did not start: {reason or self.read_last_words() or 'no reason given'}.",
            hint="Run `trainshed doctor` on this machine: it says what is missing and how to add it.",
            code="sandbox",
        )

    def read_last_words(self) -> str:
        """The last line that it or bubblewrap has written of its own."""
        text = os.pread(self._errors, 4000, 0).decode(errors="replace").strip()
        return text.splitlines()[-1] if text else ""

    def send_plan(self, plan: dict[str, Any]) -> None:
        """Tell it what to start: the job begins."""
        data = marshal.dumps(plan)
        try:
            self._control.sendall(len(data).to_bytes(4, "little") + data)
        except OSError as error:
            raise self.explain_failure() from error
        self._control.setblocking(False)

    # -- while it runs

    def fileno(self) -> int:
        """A descriptor that is readable when `receive` may have news."""
        return self._control.fileno()

    def receive(self) -> tuple[list[dict[str, Any]], list[int], bool]:
        """What it has said since the last call, the descriptors that came along, and whether it is gone."""
        given: list[int] = []
        is_gone = False
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._control, 65536, 64, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                break
            except OSError:
                data, descriptors = b"", []
            given += descriptors
            if not data:
                is_gone = True
                break
            self._received += data
        *lines, self._received = self._received.split(b"\n")
        return [json.loads(line) for line in lines], given, is_gone

    # -- its end

    def stop(self, grace: float) -> None:
        """Have it ask every rank to end, and end them by force after `grace` seconds."""
        try:
            self._control.send(f"stop {grace:.3f}\n".encode())
        except OSError:
            self.kill()

    def kill(self) -> None:
        """End every process of the sandbox at once. Does not wait."""
        if self._process is None or self._process.poll() is not None:
            return
        if not self._is_walled:
            # Init must stay to find the others; it dies last.
            try:
                self._control.send(b"kill\n")
                return
            except OSError:
                pass
        if self._pidfd >= 0:
            try:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
                return
            except OSError:
                pass
        # Bubblewrap's death is init's, and that of everything inside.
        self._process.kill()

    def wait(self) -> None:
        """Wait until it is gone."""
        if self._process is None:
            return
        patience = _END_SECONDS
        try:
            # To be woken at its end: Python's own wait with a limit only looks now and then.
            descriptor = os.pidfd_open(self._process.pid)
            try:
                wait_readable(descriptor, patience)
            finally:
                os.close(descriptor)
            patience = 0.1
        except OSError:
            pass  # before Linux 5.3
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            # Stuck in the kernel (a dead network disk): it ends when that lets go, at worst after us.
            self._process.kill()

    def close(self) -> None:
        """Give back its sockets and descriptors."""
        self._control.close()
        self._theirs.close()
        for descriptor in (self._errors, self._pidfd):
            if descriptor >= 0:
                os.close(descriptor)
        self._errors = self._pidfd = -1


def _hold(name: str, content: bytes) -> int:
    """A file in memory, to be read from its beginning."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
