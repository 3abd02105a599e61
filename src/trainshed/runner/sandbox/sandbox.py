"""The sandbox of one node of a job: prepared, started, watched and ended by the runner."""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import Any

from trainshed.model.attempt import RankExit
from trainshed.model.errors import HostUnfit
from trainshed.runner.sandbox import bubblewrap, namespace
from trainshed.runner.sandbox.init_process import InitProcess
from trainshed.runner.sandbox.init_program import INIT_PROGRAM, compile_init
from trainshed.runner.sandbox.limits import LimitKeeper
from trainshed.runner.sandbox.relay import Relay
from trainshed.runner.sandbox.resolver import Resolver
from trainshed.runner.sandbox.spawn import open_log, wait_readable
from trainshed.runner.sandbox.spec import (
    Forward,
    RankStarted,
    SandboxEnded,
    SandboxProcess,
    SandboxService,
    SandboxSpec,
    Usage,
)
from trainshed.runner.sandbox.stage import Binding, Stage
from trainshed.runner.sandbox.tree_copy import CopyWatch

__all__ = ["Event", "Sandbox"]

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
        self._init: InitProcess | None = None
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
            program = INIT_PROGRAM, compile_init()
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
        self._init = init = InitProcess(self.spec)
        try:
            logs += [open_log(path) for path in (*(p.log for p in processes), *(s.log for s in services))]
            wall = (self._program, self._stage.bindings) if self._stage is not None else None
            init.start(wall, [*logs, *(listener.fileno() for listener in listeners)])
            # It waits for its plan, so nothing of the job runs outside the group.
            if not self._keeper.adopt(init.pid):
                raise init.explain_failure("it cannot be moved into its control group")
            if self._has_own_network():
                self._resolver = Resolver.start(init.pid, [name for _, name in self.spec.hosts])
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
            init.send_plan(plan)
        except BaseException:
            self.close()
            raise
        finally:
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

    def _list_variables(self) -> dict[str, str]:
        home = self.spec.home if self._stage is not None else str(self.spec.run_root / "home")
        return {
            "HOME": home,
            "USER": self.spec.user_name,
            "LOGNAME": self.spec.user_name,
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
        }

    # -- while the job runs

    @property
    def init_pid(self) -> int:
        """The sandbox's first process, as the host numbers it."""
        return self._init.pid if self._init is not None else 0

    def fileno(self) -> int:
        """A descriptor that is readable when `poll` may have news."""
        return self._init.fileno() if self._init is not None else -1

    def poll(self) -> list[Event]:
        """What has happened since the last call; never waits."""
        if self.ended or self._init is None:
            return []
        said, descriptors, is_gone = self._init.receive()
        if descriptors:
            listeners = [socket.socket(fileno=descriptor) for descriptor in descriptors]
            self._relay = Relay(listeners, self._list_forwards())
        events = [event for item in said for event in self._read_event(item)]
        if is_gone:
            events += self._finish(self._init.read_last_words())
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

    def _finish(self, said: str) -> list[Event]:
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
        return [
            *events,
            SandboxEnded(f"The sandbox's first process ended early{f': {said}' if said else ''}."),
        ]

    def wait(self, timeout: float | None = None) -> list[Event]:
        """Wait until something happens, at most `timeout` seconds; returns it, like `poll`."""
        if self.ended or self._init is None:
            return []
        return self.poll() if wait_readable(self._init.fileno(), timeout) else []

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
        if self._init is not None and not self.ended:
            self._init.stop(grace)

    def kill(self) -> None:
        """End every process at once. Does not wait."""
        self._end_asked = True
        if self._init is not None:
            self._init.kill()

    def close(self) -> None:
        """End what still runs, and give everything back: group, sockets, mounts."""
        self.kill()
        if self._init is not None:
            self._init.wait()
        self._keeper.close(self.exits.values())
        for server in (self._relay, self._resolver):
            if server is not None:
                server.close()
        self._relay = self._resolver = None
        if self._init is not None:
            self._init.close()
            self._init = None
        if self._stage is not None:
            self._stage.close()
        self.ended = True
