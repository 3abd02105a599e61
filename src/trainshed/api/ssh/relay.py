"""One session of an ssh client, carried on over a second ssh connection byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import asyncssh

from trainshed.model.errors import TrainshedError

__all__ = ["RelaySession"]

_ACCEPTED = ("LANG", "LC_")
Enter = Callable[[], Coroutine[Any, Any, asyncssh.SSHClientConnection]]


class RelaySession(asyncssh.SSHServerSession[bytes]):
    """The side towards the client. A slow reader on either side slows the writer on the other."""

    def __init__(self, enter: Enter) -> None:
        self._enter = enter
        self._task: asyncio.Task[None] | None = None
        # What the client sent before the other side was open; the channel's window bounds it.
        self._early: list[bytes] = []
        self._has_ended = False
        self.outer: asyncssh.SSHServerChannel[bytes] | None = None
        self.inner: asyncssh.SSHClientChannel[bytes] | None = None

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        """The channel to the client."""
        self.outer = chan

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        if self._task is not None:
            self._task.cancel()
        if self.inner is not None:
            self.inner.close()

    def pty_requested(self, *_: Any) -> bool:
        """Terminals are made inside."""
        return True

    def shell_requested(self) -> bool:
        """Yes."""
        return True

    def exec_requested(self, command: str) -> bool:
        """Yes."""
        return True

    def subsystem_requested(self, subsystem: str) -> bool:
        """Yes: the other side knows which there are."""
        return True

    def session_started(self) -> None:
        """Open the other side."""
        assert self.outer is not None
        self._task = asyncio.create_task(self._open(self.outer))

    async def _open(self, outer: asyncssh.SSHServerChannel[bytes]) -> None:
        try:
            connection = await self._enter()
            sent = outer.get_environment().items()
            variables = [f"{name}={value}" for name, value in sent if name.startswith(_ACCEPTED)]
            channel, _ = await connection.create_session(
                lambda: _Inside(self),
                outer.get_command(),
                subsystem=outer.get_subsystem(),
                env=variables,
                request_pty="force" if outer.get_terminal_type() is not None else False,
                term_type=outer.get_terminal_type(),
                term_size=outer.get_terminal_size(),
                encoding=None,
            )
        except TrainshedError as fault:
            self._refuse(outer, f"{fault.message} {fault.hint}".strip())
        except (OSError, asyncssh.Error) as fault:
            self._refuse(outer, f"The job refused it: {fault}")
        else:
            self.inner = channel
            if self._early:
                channel.write(b"".join(self._early))
                self._early.clear()
            if self._has_ended:
                channel.write_eof()

    @staticmethod
    def _refuse(outer: asyncssh.SSHServerChannel[bytes], words: str) -> None:
        outer.write_stderr(f"trainshed: {words}\r\n".encode())
        outer.exit(1)

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """Bytes of the client's."""
        if self.inner is not None:
            self.inner.write(data)
        else:
            self._early.append(data)

    def eof_received(self) -> bool:
        """The client sends nothing more; it still listens."""
        self._has_ended = True
        if self.inner is not None:
            self.inner.write_eof()
        return True

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        """The client's window has another size."""
        if self.inner is not None:
            self.inner.change_terminal_size(width, height, pixwidth, pixheight)

    def signal_received(self, signal: str) -> None:
        """A signal for the program."""
        if self.inner is not None:
            self.inner.send_signal(signal)

    def break_received(self, msec: int) -> bool:
        """A break, as on a serial line."""
        if self.inner is not None:
            self.inner.send_break(msec)
        return True

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        if self.inner is not None:
            self.inner.pause_reading()

    def resume_writing(self) -> None:
        """The client reads again."""
        if self.inner is not None:
            self.inner.resume_reading()


class _Inside(asyncssh.SSHClientSession[bytes]):
    """The side towards the job."""

    def __init__(self, session: RelaySession) -> None:
        self._session = session
        self._status: int | None = None
        self._signal: tuple[str, bool, str, str] | None = None

    @property
    def _outer(self) -> asyncssh.SSHServerChannel[bytes]:
        assert self._session.outer is not None
        return self._session.outer

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if not self._outer.is_closing():
            self._outer.write(data, datatype)

    def eof_received(self) -> bool:
        if not self._outer.is_closing():
            self._outer.write_eof()
        return True

    def exit_status_received(self, status: int) -> None:
        self._status = status

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self._signal = signal, core_dumped, msg, lang

    def pause_writing(self) -> None:
        self._outer.pause_reading()

    def resume_writing(self) -> None:
        self._outer.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._outer.is_closing():
            return
        if self._signal is not None:
            self._outer.exit_with_signal(*self._signal)
        elif self._status is not None:
            self._outer.exit(self._status)
        else:
            self._outer.close()
