"""What init starts: the ranks of a job, and programs of the platform's that wait to be needed."""

from __future__ import annotations

import _socket
import errno
import marshal
import os
import time

# Loading `typing` takes 13 ms; a checker reads this name, the interpreter never.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Rank", "Service"]

SIGKILL, SIGSTOP = 9, 19
# What the runner ignores or blocks must not be ignored or blocked in the job.
SIGNALS = [number for number in range(1, 32) if number not in (SIGKILL, SIGSTOP)]
# How long a service that ended rests before the next connection may start it, and how often it may fail.
SERVICE_PAUSE, SERVICE_FAILURES = 1.0, 5


class Rank:
    """A process of the job that init started."""

    def __init__(self, number: int, log: int) -> None:
        self.number = number
        self.log = log
        self.pid = 0
        self.pidfd = -1
        self.ended_by_platform = False

    def start(self, process: dict[str, Any]) -> int:
        """Start it in a session of its own. 0, or the code with which a shell would end: 126 or 127."""
        name = process["arguments"][0]
        try:
            os.chdir(process["directory"])
            self.pid = os.posix_spawn(
                find_program(name, process["variables"]),
                process["arguments"],
                process["variables"],
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, self.log, 1),
                    (os.POSIX_SPAWN_DUP2, self.log, 2),
                ],
                setsid=True,
                setsigdef=SIGNALS,
                setsigmask=[],
            )
        except OSError as error:
            self.explain(error.filename or name, error.strerror or str(error))
            return 127 if error.errno in (errno.ENOENT, errno.ENOTDIR) else 126
        except ValueError as error:
            self.explain(name, str(error))
            return 126
        prefer_as_victim(self.pid)
        return 0

    def explain(self, name: str, reason: str) -> None:
        """Say in its log why it did not start."""
        try:
            os.write(self.log, f"trainshed: {name}: {reason}\n".encode(errors="replace"))
        except OSError:
            pass  # a full disk: the exit code says it still


class Service:
    """A program of the platform's that waits for its first connection."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.arguments: list[str] = plan["arguments"]
        self.log: int = plan["log"]
        self.pid = 0
        self.failures = 0
        self.rests_until = 0.0
        self.is_listening = False
        self.settings = os.memfd_create("settings", os.MFD_CLOEXEC)
        os.write(self.settings, marshal.dumps(plan["variables"]))
        if plan["listener"] >= 0:
            # It was opened before the sandbox, so that other nodes find it from their first moment.
            self.listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM, 0, plan["listener"])
            os.set_inheritable(plan["listener"], False)
            self.is_listening = True
            return
        self.listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        self.listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        try:
            self.listener.bind((plan["address"], plan["port"]))
            self.listener.listen(128)
            self.is_listening = True
        except OSError as error:
            os.write(self.log, f"{plan['address']}:{plan['port']}: {error.strerror}\n".encode())

    def start(self) -> None:
        """Start the program; it takes the connections itself."""
        try:
            os.lseek(self.settings, 0, os.SEEK_SET)
            self.pid = os.posix_spawn(
                self.arguments[0],
                self.arguments,
                {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, self.settings, 0),
                    (os.POSIX_SPAWN_DUP2, self.log, 1),
                    (os.POSIX_SPAWN_DUP2, self.log, 2),
                    (os.POSIX_SPAWN_DUP2, self.listener.fileno(), 3),
                ],
                setsid=True,
                setsigdef=SIGNALS,
                setsigmask=[],
            )
        except OSError as error:
            os.write(self.log, f"{self.arguments[0]}: {error.strerror}\n".encode())
            self.note_end(1)
        else:
            prefer_as_victim(self.pid)

    def note_end(self, status: int) -> None:
        """It is over: the next connection starts it again, unless it cannot work at all."""
        self.pid = 0
        self.failures = self.failures + 1 if status else 0
        self.rests_until = time.monotonic() + SERVICE_PAUSE
        if self.failures >= SERVICE_FAILURES:
            self.is_listening = False
            self.listener.close()


def find_program(name: str, variables: dict[str, str]) -> str:
    """The file that a shell would run for a command's first word."""
    if "/" in name:
        return name
    denied = False
    for folder in variables.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(":"):
        path = f"{folder or '.'}/{name}"
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
        denied = denied or os.path.isfile(path)
    if denied:
        raise PermissionError(errno.EACCES, "Permission denied", name)
    raise FileNotFoundError(errno.ENOENT, "command not found", name)


def prefer_as_victim(pid: int) -> None:
    """When memory runs out, the job's process goes before the one that reports it."""
    try:
        file = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY)
        os.write(file, b"300")
        os.close(file)
    except OSError:
        pass
