"""The sandbox of one node of a job: prepared, started, watched and ended by the runner."""

from __future__ import annotations

import json
import marshal
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from trainshed.model.attempt import RankExit
from trainshed.model.errors import HostUnfit
from trainshed.runner.sandbox import bubblewrap, init, namespace
from trainshed.runner.sandbox.limits import LimitKeeper
from trainshed.runner.sandbox.relay import Relay
from trainshed.runner.sandbox.resolver import Resolver
from trainshed.runner.sandbox.spawn import open_log, spawn, wait_readable
from trainshed.runner.sandbox.spec import (
    Forward,
    RankStarted,
    SandboxEnded,
    SandboxProcess,
    SandboxService,
    SandboxSpec,
    Usage,
)
from trainshed.runner.sandbox.stage import Binding, Stage, owner_of
from trainshed.runner.sandbox.tree_copy import CopyWatch

__all__ = ["Event", "Sandbox"]

START_SECONDS = 30.0
Event = RankStarted | RankExit | SandboxEnded


class Sandbox:
    """Runs all ranks of one node, behind a wall (`kind` "bubblewrap") or, where allowed, without ("none").

    The first `prepare` (or `claim_namespace`) needs a process with a single thread, and `start` from a thread that lives as long
    as the job: the kernel ends the job when that thread ends.
    """

    def __init__(self, spec: SandboxSpec) -> None:
        self.spec = spec
        self.kind = "bubblewrap"
        # How each rank ended, whether the whole sandbox has, and what the job sees where (once prepared).
        self.exits: dict[int, RankExit] = {}
        self.ended = False
        self.bindings: list[Binding] = []
        self._program = ""
        self._stage: Stage | None = None
        self._keeper = LimitKeeper(spec.limits)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._errors = -1
        self._pidfd = -1
        self._init_pid = 0
        self._received = b""
        self._ranks: tuple[int, ...] = ()
        self._relay: Relay | None = None
        self._resolver: Resolver | None = None
        self._end_asked = False

    @property
    def limits_in_force(self) -> tuple[str, ...]:
        """What is limited and how, for example "memory:cgroup"; known once prepared."""
        return self._keeper.in_force

    # -- before the job

    def prepare(self, on_copy: CopyWatch = lambda state: None) -> None:
        """Make the mounts that the job will see. Raises HostUnfit where no sandbox is possible, unless the
        spec allows to go without; a mount that fails is an error in any case. `on_copy` hears of a tree that must
        be copied, and may end that by raising."""
        try:
            self._program = bubblewrap.find_bubblewrap()
            namespace.enter_private_namespace()
            if self.spec.allow_unsandboxed:
                # Only worth the time where there is a choice: else bubblewrap itself says so.
                from trainshed.runner.sandbox.fitness import require_user_namespaces

                require_user_namespaces(self.spec.outside_uid)
        except HostUnfit:
            if not self.spec.allow_unsandboxed:
                raise
            self.kind = "none"
        else:
            program = bubblewrap.INIT_PROGRAM, bubblewrap.compile_init()
            files = bubblewrap.render_identity_files(self.spec)
            stage = Stage(self.spec, on_copy)
            stage.build(
                program, bubblewrap.list_etc(self.spec), files, bubblewrap.list_platform_mounts(self.spec)
            )
            self._stage, self.bindings = stage, stage.bindings
        self._keeper.apply()

    # -- the job begins

    def start(self, processes: list[SandboxProcess], services: tuple[SandboxService, ...] = ()) -> None:
        """Start every rank; what happens to them comes out of `poll`. Services are started when they are needed."""
        self._ranks = tuple(process.rank for process in processes)
        logs: list[int] = []
        listeners = [service.listener for service in services if service.listener is not None]
        ours, theirs = socket.socketpair()
        self._control = ours
        try:
            logs += [open_log(path) for path in (*(p.log for p in processes), *(s.log for s in services))]
            self._spawn(theirs, [*logs, *(listener.fileno() for listener in listeners)])
            if self._has_own_network():
                self._resolver = Resolver.start(self._init_pid, [name for _, name in self.spec.hosts])
            plan = {
                "grace": float(self.spec.limits.grace),
                "forwards": [forward.port for forward in self._list_forwards()],
                "affinity": self._keeper.processors,
                "processes_limit": self._keeper.most_processes,
                "processes": [
                    {
                        "rank": process.rank,
                        "log": log,
                        "arguments": list(process.arguments),
                        "variables": {**self._list_variables(), **process.variables},
                        "directory": process.directory,
                    }
                    for process, log in zip(processes, logs, strict=False)
                ],
                "services": [
                    {
                        "log": log,
                        "address": service.address,
                        "port": service.port,
                        "listener": service.listener.fileno() if service.listener is not None else -1,
                        "arguments": list(service.arguments),
                        "variables": {**self._list_variables(), **service.variables},
                    }
                    for service, log in zip(services, logs[len(processes) :], strict=True)
                ],
            }
            data = marshal.dumps(plan)
            try:
                ours.sendall(len(data).to_bytes(4, "little") + data)
            except OSError as error:
                raise self._explain_failure() from error
            ours.setblocking(False)
        except BaseException:
            self.close()
            raise
        finally:
            theirs.close()
            for log in logs:
                os.close(log)
            for listener in listeners:
                listener.close()

    def _list_forwards(self) -> tuple[Forward, ...]:
        is_ours = self._has_own_network() and self.spec.network == "platform"
        return self.spec.forwards if is_ours else ()

    def _has_own_network(self) -> bool:
        """Whether this sandbox's network is its alone, so that its doors are to be opened here."""
        return self._stage is not None and self.spec.network != "open" and self.spec.shared_network < 0

    def _is_in_shared_network(self) -> bool:
        return self._stage is not None and self.spec.network != "open" and self.spec.shared_network >= 0

    def _list_variables(self) -> dict[str, str]:
        home = self.spec.home if self._stage is not None else str(self.spec.run_root / "home")
        return {
            "HOME": home,
            "USER": self.spec.user_name,
            "LOGNAME": self.spec.user_name,
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
        }

    def _spawn(self, theirs: socket.socket, given: list[int]) -> None:
        python = os.path.realpath(sys.executable)
        control = str(theirs.fileno())
        kept = [theirs.fileno(), *given]
        info_read, info_write = os.pipe()
        opened = [info_read, info_write]
        self._errors = os.memfd_create("sandbox-errors", os.MFD_CLOEXEC)
        try:
            if self._stage is not None:
                options = bubblewrap.build_arguments(self.spec, self._stage.bindings, info_write)
                listing = os.memfd_create("sandbox-options", os.MFD_CLOEXEC)
                opened.append(listing)
                os.write(listing, b"".join(os.fsencode(option) + b"\0" for option in options))
                os.lseek(listing, 0, os.SEEK_SET)
                inside = [python, "-I", "-S", bubblewrap.INIT_PROGRAM, control]
                command = [self._program, "--args", str(listing), *inside]
                kept += [info_write, listing]
            else:
                command = [python, "-I", "-S", str(Path(init.__file__).resolve()), control]
            self._process = spawn(
                command,
                kept=kept,
                output=self._errors,
                owner=owner_of(self.spec),
                network=self.spec.shared_network if self._is_in_shared_network() else -1,
            )
        except (OSError, subprocess.SubprocessError) as error:
            for descriptor in opened:
                os.close(descriptor)
            opened.clear()
            reason = str(error)
            if isinstance(error, OSError):
                reason = f"{error.filename or command[0]}: {error.strerror}"
            raise self._explain_failure(reason) from error
        try:
            os.close(opened.pop(1))
            theirs.close()
            self._init_pid = self._read_pid(info_read) if self._stage is not None else self._process.pid
        finally:
            for descriptor in opened:
                os.close(descriptor)
        try:
            self._pidfd = os.pidfd_open(self._init_pid)
        except OSError:
            self._pidfd = -1
        # Init waits for its plan, so nothing of the job runs outside the group.
        if not self._keeper.adopt(self._init_pid):
            raise self._explain_failure("it cannot be moved into its control group")

    def _read_pid(self, info: int) -> int:
        """The pid of init, as bubblewrap tells it once the namespaces exist."""
        data = b""
        deadline = time.monotonic() + START_SECONDS
        while b"}" not in data:
            if not wait_readable(info, deadline - time.monotonic()):
                raise self._explain_failure("bubblewrap does not answer")
            piece = os.read(info, 4096)
            if not piece:
                raise self._explain_failure()
            data += piece
        return int(json.loads(data)["child-pid"])

    def _explain_failure(self, reason: str = "") -> HostUnfit:
        if self._process is not None and not reason:
            try:
                self._process.wait(2)
            except subprocess.TimeoutExpired:
                pass
        said = self._read_errors()
        return HostUnfit(
            f"The sandbox did not start: {reason or said or 'no reason given'}.",
            hint="Run `trainshed doctor` on this machine: it says what is missing and how to add it.",
            code="sandbox",
        )

    def _read_errors(self) -> str:
        if self._errors < 0:
            return ""
        text = os.pread(self._errors, 4000, 0).decode(errors="replace").strip()
        return text.splitlines()[-1] if text else ""

    # -- while the job runs

    @property
    def init_pid(self) -> int:
        """The sandbox's first process, as the host numbers it."""
        return self._init_pid

    def fileno(self) -> int:
        """A descriptor that is readable when `poll` may have news."""
        return self._control.fileno() if self._control is not None else -1

    def poll(self) -> list[Event]:
        """What has happened since the last call; never waits."""
        if self.ended or self._control is None:
            return []
        events: list[Event] = []
        at_end = False
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._control, 65536, 64, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                break
            except OSError:
                data, descriptors = b"", []
            if descriptors:
                listeners = [socket.socket(fileno=descriptor) for descriptor in descriptors]
                self._relay = Relay(listeners, self._list_forwards())
            if not data:
                at_end = True
                break
            self._received += data
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            events += self._read_event(json.loads(line))
        if at_end:
            events += self._finish()
        return events

    def _read_event(self, event: dict[str, Any]) -> list[Event]:
        if event["event"] == "started":
            return [RankStarted(event["rank"], event["pid"], event["time"])]
        if event["event"] == "exit":
            found = RankExit(
                event["rank"],
                event["exit_code"],
                event["signal"],
                event["time"],
                event["ended_by_platform"],
            )
            self.exits[found.rank] = found
            return [found]
        if event["event"] == "done":
            self._keeper.add_final(event["cpu_seconds"], event["peak_memory"])
        return []

    def _finish(self) -> list[Event]:
        """Init is gone. Ranks that it could not report died with it."""
        self.ended = True
        events: list[Event] = []
        lost = [rank for rank in self._ranks if rank not in self.exits]
        for rank in lost:
            self.exits[rank] = RankExit(rank, 128 + 9, signal.SIGKILL.value, time.time(), self._end_asked)
            events.append(self.exits[rank])
        self._keeper.end()
        if not lost or self._end_asked:
            return [*events, SandboxEnded()]
        said = self._read_errors()
        return [
            *events,
            SandboxEnded(f"The sandbox's first process ended early{f': {said}' if said else ''}."),
        ]

    def wait(self, timeout: float | None = None) -> list[Event]:
        """Wait until something happens, at most `timeout` seconds; returns it, like `poll`."""
        if self.ended or self._control is None:
            return []
        return self.poll() if wait_readable(self._control.fileno(), timeout) else []

    def check_limits(self) -> bool:
        """Where no control group limits memory: end the job if it uses too much, and say so with True.
        To be called every second or so."""
        if self.ended or not self._keeper.is_over_memory():
            return False
        self.kill()
        return True

    def usage(self) -> Usage:
        """What the job has used so far; CPU time and peak stay known after its end."""
        return self._keeper.usage()

    def out_of_memory(self) -> bool:
        """Whether the kernel, or our own watch, killed a process of the job for want of memory."""
        return self._keeper.has_run_out_of_memory(self.exits.values())

    # -- the end

    def stop(self, grace: float) -> None:
        """Ask every rank to end (TERM) and end them by force after `grace` seconds. Does not wait."""
        self._end_asked = True
        if self._control is None or self.ended:
            return
        try:
            self._control.send(f"stop {grace:.3f}\n".encode())
        except OSError:
            self.kill()

    def kill(self) -> None:
        """End every process at once. Does not wait."""
        self._end_asked = True
        if self._process is None or self._process.poll() is not None:
            return
        if self._stage is None:
            # Init must stay to find the others; it dies last.
            try:
                if self._control is not None:
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

    def close(self) -> None:
        """End what still runs, and give everything back: group, sockets, mounts."""
        self.kill()
        if self._process is not None:
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                # Stuck in the kernel (a dead network disk): it ends when that lets go, at worst after us.
                self._process.kill()
        self._keeper.close(self.exits.values())
        for server in (self._relay, self._resolver):
            if server is not None:
                server.close()
        self._relay = self._resolver = None
        if self._control is not None:
            self._control.close()
            self._control = None
        for descriptor in (self._errors, self._pidfd):
            if descriptor >= 0:
                os.close(descriptor)
        self._errors = self._pidfd = -1
        if self._stage is not None:
            self._stage.close()
        self.ended = True
