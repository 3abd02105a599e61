"""The first process inside a sandbox: starts the ranks, reports their ends, takes everything down.

The modules of this folder are compiled into one program (`init_program`), which runs with `python -I -S`, so
they import nothing of ours but each other. They are on the path to the first line of every job: C modules are
used where their Python wrappers would cost several milliseconds (`socket` and `signal` pull in `enum` and `re`),
and `marshal` because both ends run the same interpreter.

Protocol, over one stream socket: the runner sends a 4-byte length and the plan; then lines `stop SECONDS`
or `kill`. Init sends JSON lines: forwards (with the listening sockets attached), started, exit, done.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import marshal
import os
import resource
import select
import sys
import time

from trainshed.runner.sandbox.inside.children import Rank, Service
from trainshed.runner.sandbox.inside.launchers import Launchers
from trainshed.runner.sandbox.inside.processes import (
    HASTY_LAUNCHERS,
    THEIR_HANDS,
    descendants_of,
    find_descendants,
    has_processes,
    list_processes,
    send,
)

# Loading `typing` takes 13 ms; a checker reads this name, the interpreter never.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Init", "main"]

SIGKILL, SIGUSR1, SIGTERM = 9, 10, 15
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
SYS_KEYCTL, KEYCTL_JOIN_SESSION_KEYRING = {"x86_64": 250, "aarch64": 219}, 1
REAP_SECONDS = 0.5
# How long after a rank died of SIGTERM ours may come, on a busy machine.
OUR_TURN_SECONDS = 2.0
# How long services have to bring their callers' last answers out.
FAREWELL_SECONDS = 3.0


class Init:
    """Starts, watches and ends the ranks."""

    def __init__(self, control: int) -> None:
        self.socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, control)
        self.running: dict[int, Rank] = {}
        # Ranks that have ended while their children still do what SIGTERM asked of them, with their exit status.
        self.lingering: dict[int, tuple[Rank, int]] = {}
        # Processes outside the ranks' own sessions that have got SIGTERM.
        self.asked: set[int] = set()
        self.services: list[Service] = []
        # Those whose first connection is waited for, by the descriptor of their socket.
        self.awaited: dict[int, Service] = {}
        self.commands = b""
        self.ending = False
        # Somebody has sent SIGTERM to every process here, us included, and not through the runner.
        self.is_signalled = False
        self.launchers = Launchers()
        # Until when a signal of that kind is waited for; 0 as long as no rank has died of one.
        self.turn_ends = 0.0
        self.deadline = 0.0
        self.grace = 30.0
        self.is_alone = os.getpid() == 1
        self.poller = select.poll()

    def run(self) -> None:
        """Live as long as a rank does."""
        # A scheduler that wants its machine back signals every process. The ranks have it then; we live on, so that
        # they have their grace, and ask for it ourselves.
        _signal.pthread_sigmask(_signal.SIG_BLOCK, [SIGTERM])
        plan = self.read_plan()
        self.grace = plan["grace"]
        self.apply_limits(plan)
        self.open_forwards(plan["forwards"])
        for item in (*plan["processes"], *plan["services"]):
            os.set_inheritable(item["log"], False)
        self.services = [Service(item) for item in plan["services"]]
        for process in plan["processes"]:
            self.start(process)
        self.poller.register(self.socket.fileno(), select.POLLIN)
        while self.running or self.lingering:
            self.await_connections()
            self.wait_for_news()
            self.reap()
            is_over = self.ending and time.monotonic() >= self.deadline
            if is_over:
                self.kill_all()
                self.deadline = time.monotonic() + 1
            self.launchers.release(self.deadline)
            self.release_lingering(is_over)
        self.dismiss_services()
        self.kill_all()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
        self.say(f'{{"event": "done", "cpu_seconds": {cpu}, "peak_memory": {peak}}}')

    def read_plan(self) -> dict[str, Any]:
        """The plan; its arrival is also the word to go. Without one the runner is dead: leave."""
        size = int.from_bytes(self.receive(4), "little")
        plan: dict[str, Any] = marshal.loads(self.receive(size))
        return plan

    def receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(min(size - len(data), 1 << 20))
            if not piece:
                os._exit(0)
            data += piece
        return bytes(data)

    def say(self, line: str, descriptors: bytes = b"") -> None:
        attached = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)] if descriptors else []
        try:
            self.socket.sendmsg([line.encode() + b"\n"], attached)
        except OSError:
            self.end(0)  # nobody listens any more

    def apply_limits(self, plan: dict[str, Any]) -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        if plan["processes_limit"]:
            hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
            limit = plan["processes_limit"]
            limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
        if plan["affinity"]:
            os.sched_setaffinity(0, plan["affinity"])

    def open_forwards(self, ports: list[int]) -> None:
        """Listen inside, and hand the sockets out: a socket stays in the network it was made in, so the
        runner can take the connections from outside without any process in between."""
        if not ports:
            return
        listeners = []
        for port in ports:
            listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
            listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen(512)
            listeners.append(listener)
        numbers = b"".join(item.fileno().to_bytes(4, sys.byteorder) for item in listeners)
        self.say('{"event": "forwards"}', numbers)
        for listener in listeners:
            listener.close()

    def start(self, process: dict[str, Any]) -> None:
        """Start a rank in a session of its own; what cannot start ends like in a shell: 126 or 127."""
        rank = Rank(process["rank"], process["log"])
        code = rank.start(process)
        os.close(rank.log)
        if code:
            self.report(rank, code, 0)
            return
        self.running[rank.pid] = rank
        try:
            rank.pidfd = os.pidfd_open(rank.pid)
            self.poller.register(rank.pidfd, select.POLLIN)
        except (AttributeError, OSError):
            rank.pidfd = -1  # before Linux 5.3: noticed at the next look
        self.say(f'{{"event": "started", "rank": {rank.number}, "pid": {rank.pid}, "time": {time.time()}}}')

    def wait_for_news(self) -> None:
        seconds = REAP_SECONDS if all(rank.pidfd >= 0 for rank in self.running.values()) else 0.05
        if self.lingering or self.launchers.held:
            seconds = 0.05
        if self.ending:
            seconds = min(seconds, max(0.0, self.deadline - time.monotonic()))
        for descriptor, _ in self.poller.poll(int(seconds * 1000) + 1):
            if descriptor == self.socket.fileno():
                self.obey()
            elif descriptor in self.awaited:
                self.poller.unregister(descriptor)
                self.awaited.pop(descriptor).start()

    def await_connections(self) -> None:
        """Look out for connections to services that do not run and have rested."""
        for service in self.services:
            is_ready = service.is_listening and not service.pid and time.monotonic() >= service.rests_until
            if is_ready and service.listener.fileno() not in self.awaited:
                self.awaited[service.listener.fileno()] = service
                self.poller.register(service.listener.fileno(), select.POLLIN)

    def obey(self) -> None:
        try:
            data = self.socket.recv(4096)
        except OSError:
            data = b""
        if not data:  # the runner is dead, and nothing must outlive it
            self.poller.unregister(self.socket.fileno())
            self.end(0)
            return
        *lines, self.commands = (self.commands + data).split(b"\n")
        for line in lines:
            word, _, value = line.partition(b" ")
            # Who has left before the word came was not ended by it.
            self.reap()
            self.end(0 if word == b"kill" else float(value))

    def take_signal(self, seconds: float = 0.0) -> None:
        """Whether SIGTERM came from outside the sandbox: then the ranks have got it as well, and their grace begins."""
        found = _signal.sigtimedwait([SIGTERM], seconds)
        # A sender whom we cannot see is outside; one of the job's own processes has no say here.
        if found is None or (found.si_pid and found.si_pid in find_descendants(os.getpid())):
            return
        self.is_signalled = True
        self.launchers.hold()
        self.end(self.grace)

    def end(self, grace: float) -> None:
        """Ask every rank to end, and remember when to insist."""
        deadline = time.monotonic() + grace
        if self.ending:
            self.deadline = min(self.deadline, deadline)
            return
        self.ending, self.deadline = True, deadline
        for rank in self.running.values():
            rank.ended_by_platform = True
        if grace > 0 and not self.is_signalled:
            self.ask_to_end()

    def ask_to_end(self) -> None:
        """Send SIGTERM to every rank with all of its group, which is what shells and most launchers pass on.

        Not to launchers of MPI, here or come by ssh: those kill their processes too soon. Their processes get it in
        their place, and the launcher leaves when they have left.
        """
        processes = list_processes()
        mine = descendants_of(os.getpid(), processes)
        hasty = [pid for pid in mine if processes[pid].name in HASTY_LAUNCHERS]
        if not hasty:
            for rank in self.running.values():
                try:
                    os.killpg(rank.pid, SIGTERM)
                except OSError:
                    pass
            return
        groups = {rank.pid for rank in self.running.values()}
        wanted = {pid for pid in mine if processes[pid].group in groups}
        for pid in hasty:
            wanted.update(descendants_of(pid, processes))
        hands = [pid for pid in wanted if processes[pid].name in THEIR_HANDS]
        for pid in wanted.difference(hasty, hands):
            self.asked.add(pid)
            send(pid, SIGTERM)

    def reap(self) -> None:
        """Collect every process that has ended: ranks, and orphans that were left to init."""
        self.take_signal()
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            rank = self.running.pop(pid, None)
            if rank is None:
                for service in self.services:
                    if service.pid == pid:
                        service.note_end(status)
                continue
            if rank.pidfd >= 0:
                self.poller.unregister(rank.pidfd)
                os.close(rank.pidfd)
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) == SIGTERM and not self.ending:
                # Whoever signals all does so one after the other: our turn may come a moment later.
                self.turn_ends = self.turn_ends or time.monotonic() + OUR_TURN_SECONDS
                self.running[pid] = rank
                self.take_signal(max(0.0, self.turn_ends - time.monotonic()))
                del self.running[pid]
            # A shell dies of SIGTERM at once; the training that it ran may still be writing a checkpoint.
            if rank.ended_by_platform and time.monotonic() < self.deadline:
                self.lingering[pid] = rank, status
            else:
                self.report_status(rank, status)

    def release_lingering(self, is_over: bool) -> None:
        """Report the ranks of which nothing is left any more, or whose time is over."""
        for pid, (rank, status) in list(self.lingering.items()):
            is_last = not self.running and len(self.lingering) == 1
            if is_over or not (has_processes(pid) or (is_last and self.has_orphans())):
                del self.lingering[pid]
                self.report_status(rank, status)

    def has_orphans(self) -> bool:
        """Whether processes are left that began a session of their own, as launchers let theirs do.

        They have their grace too. Nobody has sent them SIGTERM yet, unless their launcher is on another node: those
        came by ssh. Only shells of people, which have a terminal, are not waited for.
        """
        processes = list_processes()
        services = {service.pid for service in self.services if service.pid}
        by_ssh = {pid for service in services for pid in descendants_of(service, processes)}
        found = False
        for pid in descendants_of(os.getpid(), processes):
            process = processes[pid]
            if pid in services or process.terminal:
                continue
            found = True
            is_told = pid in self.asked or pid in by_ssh or process.name in HASTY_LAUNCHERS
            if not is_told and not self.is_signalled:
                self.asked.add(pid)
                send(pid, SIGTERM)
        return found

    def dismiss_services(self) -> None:
        """Let services leave by themselves. The last rank may have ended because of a command that came by ssh, and
        whoever sent that command waits to hear how it ended."""
        until = time.monotonic() + FAREWELL_SECONDS
        if self.ending:
            until = min(until, self.deadline)
        for service in self.services:
            if service.pid:
                send(service.pid, SIGUSR1)
        while any(service.pid for service in self.services) and time.monotonic() < until:
            time.sleep(0.01)
            self.reap()

    def report_status(self, rank: Rank, status: int) -> None:
        if os.WIFSIGNALED(status):
            self.report(rank, 128 + os.WTERMSIG(status), os.WTERMSIG(status))
        else:
            self.report(rank, os.WEXITSTATUS(status), 0)

    def report(self, rank: Rank, code: int, signal: int) -> None:
        by_platform = "true" if rank.ended_by_platform else "false"
        self.say(
            f'{{"event": "exit", "rank": {rank.number}, "exit_code": {code}, "signal": {signal}, '
            f'"time": {time.time()}, "ended_by_platform": {by_platform}}}'
        )
        if code:
            self.end(self.grace)

    def kill_all(self) -> None:
        """End every process of the sandbox but this one."""
        if self.is_alone:
            # As process 1 of its own PID namespace, -1 means the namespace and nothing else.
            try:
                os.kill(-1, SIGKILL)
            except OSError:
                pass
            return
        for _ in range(100):
            children = find_descendants(os.getpid())
            if not children:
                return
            for pid in children:
                try:
                    os.kill(pid, SIGKILL)
                except OSError:
                    pass
            time.sleep(0.005)
            self.reap()


def call_library(name: str, *arguments: int) -> int:
    """A function of the C library, without the 5 ms that the `ctypes` package takes to load."""
    import _ctypes

    loader: Any = _ctypes
    result: int = loader.call_function(loader.dlsym(loader.dlopen(None, 2), name), arguments)
    return result


def main(control: int, *spent: int) -> None:
    """Run as the sandbox's first process. `spent` are descriptors that have done their part."""
    for descriptor in spent:
        os.close(descriptor)
    os.set_inheritable(control, False)
    # The job runs with our uid: it must not trace us or reach our descriptors through /proc.
    call_library("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
    # Kernel keys (of Kerberos, of encrypted disks) pass from parent to child: begin with an empty ring.
    keyctl = SYS_KEYCTL.get(os.uname().machine)
    if keyctl is not None:
        call_library("syscall", keyctl, KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
    if os.getpid() != 1:
        call_library("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    Init(control).run()
    sys.stdout.flush()
    os._exit(0)
