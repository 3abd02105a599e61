"""What one ssh client runs on a node: a command or a shell, on pipes or on a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncssh import SSHServerProcess

    from trainshed.runner.ssh.server import Host

__all__ = ["Session"]

# How much later than on another node a signal for all may come here.
TURN_SECONDS = 2.0
PIECE = 64 * 1024
# The client's variables that a session takes.
ACCEPTED = ("LANG", "LC_")


class Session:
    """One command or shell."""

    def __init__(self, process: SSHServerProcess[bytes], host: Host) -> None:
        self.process = process
        self.host = host
        self.child: asyncio.subprocess.Process | None = None
        self.terminal = -1

    async def run(self) -> None:
        """Run to the end, and say how it ended."""
        try:
            closed = asyncio.ensure_future(self.process.wait_closed())
            with_terminal = self.process.term_type is not None
            work = asyncio.ensure_future(self._run_on_terminal() if with_terminal else self._run_on_pipes())
            await asyncio.wait({closed, work}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and await self._is_leaving():
                # Everything here was asked to end, and so was whoever asked: the rest of the grace is for the session.
                await asyncio.wait({work})
            if not work.done():
                # Whoever asked has gone: what they left behind is told, as by a terminal that hangs up.
                self._signal(signal.SIGHUP)
                work.cancel()
            closed.cancel()
            await asyncio.gather(work, closed, return_exceptions=True)
            if work.cancelled():
                return
            self._report(work.result())
        except OSError as error:
            with contextlib.suppress(OSError):
                self.process.stderr.write(f"trainshed: {error.strerror}\n".encode())
            self.process.exit(126)

    async def _is_leaving(self) -> bool:
        """Whether this node was signalled as a whole. Whoever had connected may have been so a moment earlier."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.host.leaving.wait(), TURN_SECONDS)
        return self.host.leaving.is_set()

    def _report(self, code: int) -> None:
        if code >= 0:
            self.process.exit(code)
            return
        name = signal.Signals(-code).name.removeprefix("SIG")
        self.process.exit_with_signal(name)

    def _arguments(self) -> tuple[str, list[str]]:
        shell = next((path for path in ("/bin/bash", "/bin/sh") if os.path.exists(path)), "/bin/sh")
        command = self.process.command
        if command is None:
            return shell, [f"-{os.path.basename(shell)}"]
        return shell, [os.path.basename(shell), "-c", command]

    def _variables(self, terminal: str = "") -> dict[str, str]:
        sent = {
            name: value for name, value in self.process.env.items() if name.startswith(ACCEPTED) and value
        }
        peer = self.process.get_extra_info("peername") or ("0.0.0.0", 0)
        here = self.process.get_extra_info("sockname") or ("0.0.0.0", 0)
        variables = {
            "SHELL": "/bin/bash",
            **self.host.variables,
            **sent,
            "HOME": self.host.home,
            "SSH_CLIENT": f"{peer[0]} {peer[1]} {here[1]}",
            "SSH_CONNECTION": f"{peer[0]} {peer[1]} {here[0]} {here[1]}",
        }
        if terminal:
            variables |= {"SSH_TTY": terminal, "TERM": self.process.term_type or "xterm"}
        return variables

    async def _run_on_pipes(self) -> int:
        shell, arguments = self._arguments()
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            *arguments,
            executable=shell,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=self._variables(),
            cwd=self.host.home,
            start_new_session=True,
            preexec_fn=restore_signals,
        )
        self.child = child
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        feeding = asyncio.ensure_future(self._feed_pipe(child.stdin))
        try:
            await asyncio.gather(
                self._carry(child.stdout, self.process.stdout), self._carry(child.stderr, self.process.stderr)
            )
            return await child.wait()
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    async def _feed_pipe(self, sink: asyncio.StreamWriter) -> None:
        try:
            async for data in self._read_input():
                sink.write(data)
                await sink.drain()
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            sink.close()

    @staticmethod
    async def _carry(source: asyncio.StreamReader, sink: Any) -> None:
        """Bring output out; what nobody reads any more is thrown away, so that the program can go on."""
        is_open = True
        while data := await source.read(PIECE):
            if is_open:
                try:
                    sink.write(data)
                    await sink.drain()
                except OSError:
                    is_open = False

    async def _run_on_terminal(self) -> int:
        shell, arguments = self._arguments()
        self.terminal, slave = pty.openpty()
        loop = asyncio.get_running_loop()
        feeding: asyncio.Future[None] | None = None
        try:
            self._resize(*self.process.term_size)
            self.child = await asyncio.create_subprocess_exec(
                *arguments,
                executable=shell,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                env=self._variables(os.ttyname(slave)),
                cwd=self.host.home,
                start_new_session=True,
                preexec_fn=take_terminal,
            )
            os.close(slave)
            slave = -1
            reader = asyncio.StreamReader(PIECE)
            screen = os.fdopen(self.terminal, "rb", buffering=0, closefd=False)
            transport, _ = await loop.connect_read_pipe(lambda: TerminalProtocol(reader), screen)
            feeding = asyncio.ensure_future(self._feed_terminal())
            showing = asyncio.ensure_future(self._carry(reader, self.process.stdout))
            code = await self.child.wait()
            # What it wrote last is still to be read; a program in the background may keep the terminal open.
            await asyncio.wait({showing}, timeout=1)
            showing.cancel()
            transport.close()
            await asyncio.gather(showing, return_exceptions=True)
            return code
        finally:
            if feeding is not None:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
            for descriptor in (slave, self.terminal):
                if descriptor >= 0:
                    os.close(descriptor)
            self.terminal = -1

    async def _feed_terminal(self) -> None:
        async for data in self._read_input():
            while data:
                try:
                    data = data[os.write(self.terminal, data) :]
                except BlockingIOError:
                    await asyncio.sleep(0.01)
                except OSError:
                    return

    async def _read_input(self) -> AsyncIterator[bytes]:
        """What the other side sends; signals and new sizes of its window come between."""
        import asyncssh

        while True:
            try:
                data = await self.process.stdin.read(PIECE)
            except asyncssh.TerminalSizeChanged as change:
                self._resize(change.width, change.height, change.pixwidth, change.pixheight)
            except asyncssh.SignalReceived as received:
                number = getattr(signal, f"SIG{received.signal}", None)
                if number is not None:
                    self._signal(number)
            except asyncssh.BreakReceived:
                self._signal(signal.SIGINT)
            else:
                if not data:
                    return
                yield data

    def _resize(self, width: int, height: int, pixel_width: int = 0, pixel_height: int = 0) -> None:
        if self.terminal >= 0:
            size = struct.pack("HHHH", height or 24, width or 80, pixel_width, pixel_height)
            fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, size)

    def _signal(self, number: int) -> None:
        if self.child is not None and self.child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child.pid, number)


class TerminalProtocol(asyncio.StreamReaderProtocol):
    """A terminal whose programs have all gone gives an error; that is its end."""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(None)


def restore_signals() -> None:
    """A program of a session begins with what a program can expect."""
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def take_terminal() -> None:
    """Make the terminal the one that the new session is controlled from."""
    restore_signals()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
