"""The ssh server of a node. It runs inside the job's sandbox, as the job's user, and is nobody's proof of anything:
what a session may do is what the job may do.

Run as a script, `python -I -S server.py KEYS HOME`, with a listening socket as descriptor 3 and the variables of
sessions (marshalled) to be read from the standard input. It leaves when nobody has been connected for a minute;
the next connection starts it again.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import marshal
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncssh import SSHKey, SSHServerConnection, SSHServerProcess

LISTENER = 3
IDLE_SECONDS = 60.0
# How long commands that still run may take when the node has ended, and their callers to hang up.
LAST_COMMANDS_SECONDS = 1.5
HANG_UP_SECONDS = 0.5
# The password of Apulis' jobs, where there is one.
PASSWORD = "DLTS_JOB_TOKEN"


class Host:
    """What all connections share."""

    def __init__(self, keys: Path, home: str, variables: dict[str, str]) -> None:
        self.keys = keys
        self.home = home
        self.variables = variables
        self.connections: set[SSHServerConnection] = set()
        # Programs that run for somebody who waits for their end, and for somebody who sits before a terminal.
        self.commands: set[SSHServerProcess[bytes]] = set()
        self.terminals: set[SSHServerProcess[bytes]] = set()
        self.has_changed = asyncio.Event()
        self.leaving = asyncio.Event()
        self.is_dismissed = False

    def is_authorized(self, key: SSHKey, *, as_authority: bool = False) -> bool:
        """Whether a key is the job's own, one of its owner's, or one that the job itself has added. An authority
        is one whose certificates are as good."""
        wanted = [b"cert-authority"] if as_authority else []
        wanted += key.export_public_key().split()[:2]
        for path in (self.keys / "authorized_keys", Path(self.home) / ".ssh" / "authorized_keys"):
            try:
                lines = path.read_bytes().splitlines()
            except OSError:
                continue
            if any(line.split()[: len(wanted)] == wanted for line in lines):
                return True
        return False

    def leave(self) -> None:
        """SIGTERM has come, and not for us alone."""
        self.leaving.set()

    def dismiss(self) -> None:
        """SIGUSR1 has come: the job's processes on this node have ended."""
        self.is_dismissed = True
        self.has_changed.set()

    async def wait_until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Wait for something of this; whether it came in time."""
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    self.has_changed.clear()
                    await self.has_changed.wait()
        except TimeoutError:
            return False
        return True

    async def say_farewell(self) -> None:
        """Tell the callers of commands how these end, and people why they are cut off; hang up."""
        await self.wait_until(lambda: not self.commands, LAST_COMMANDS_SECONDS)
        for process in self.terminals:
            process.stdout.write(b"\r\nThe job has ended on this node.\r\n")
            process.close()
        await self.wait_until(lambda: not self.connections, HANG_UP_SECONDS)
        for connection in list(self.connections):
            connection.close()
        await self.wait_until(lambda: not self.connections, HANG_UP_SECONDS)

    def is_password(self, password: str) -> bool:
        """Whether a password is the job's."""
        own = self.variables.get(PASSWORD, "")
        return bool(own) and hmac.compare_digest(own.encode(), password.encode())


def make_server(host: Host) -> type:
    """The class of a connection's server side."""
    import asyncssh

    class Server(asyncssh.SSHServer):
        """Lets in by key, and lets whoever is in do what the job could do."""

        def connection_made(self, conn: SSHServerConnection) -> None:
            self.connection = conn
            host.connections.add(conn)
            host.has_changed.set()

        def connection_lost(self, exc: Exception | None) -> None:
            host.connections.discard(self.connection)
            host.has_changed.set()

        def begin_auth(self, username: str) -> bool:
            return True

        def public_key_auth_supported(self) -> bool:
            return True

        def validate_public_key(self, username: str, key: SSHKey) -> bool:
            return host.is_authorized(key)

        def validate_ca_key(self, username: str, key: SSHKey) -> bool:
            return host.is_authorized(key, as_authority=True)

        def password_auth_supported(self) -> bool:
            return PASSWORD in host.variables

        def validate_password(self, username: str, password: str) -> bool:
            return host.is_password(password)

        def connection_requested(self, *_: Any) -> bool:
            return True

        def server_requested(self, *_: Any) -> bool:
            return True

        def unix_connection_requested(self, *_: Any) -> bool:
            return True

        def unix_server_requested(self, *_: Any) -> bool:
            return True

    return Server


async def serve(keys: Path, home: str, variables: dict[str, str]) -> None:
    """Serve until nobody has been connected for a while."""
    import asyncssh

    from trainshed.runner.ssh.session import Session

    host = Host(keys, home, variables)
    # A scheduler that wants its machine back signals every process. The sandbox ends us, when the job's have had their
    # time; a handler, and not to ignore it, because the programs of sessions would inherit that.
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, host.leave)
    loop.add_signal_handler(signal.SIGUSR1, host.dismiss)

    async def handle(process: SSHServerProcess[bytes]) -> None:
        sessions = host.commands if process.term_type is None else host.terminals
        sessions.add(process)
        try:
            await Session(process, host).run()
        finally:
            sessions.discard(process)
            host.has_changed.set()

    class Files(asyncssh.SFTPServer):
        """Files by SFTP. A client such as scp takes an end without a status for a failure."""

        def exit(self) -> None:
            self.channel.exit(0)

    listener = socket.socket(fileno=LISTENER)
    listener.setblocking(False)
    acceptor = await asyncssh.listen(
        sock=listener,
        server_factory=make_server(host),
        server_host_keys=[str(keys / "host_key")],
        process_factory=handle,
        sftp_factory=Files,
        allow_scp=True,
        encoding=None,
        line_editor=False,
        agent_forwarding=False,
        keepalive_interval=30,
        login_timeout=60,
    )
    while not host.is_dismissed:
        host.has_changed.clear()
        try:
            await asyncio.wait_for(host.has_changed.wait(), IDLE_SECONDS)
        except TimeoutError:
            if not host.connections:
                break
    acceptor.close()
    await host.say_farewell()


def main(arguments: list[str]) -> None:
    """Become the server."""
    variables: dict[str, str] = marshal.loads(Path("/proc/self/fd/0").read_bytes())
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.set_inheritable(LISTENER, False)
    os.chdir(arguments[1])
    os.umask(0o022)
    sys.path.insert(0, str(Path(__file__).parent))
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    asyncio.run(serve(Path(arguments[0]), arguments[1], variables))


if __name__ == "__main__":
    main(sys.argv[1:])
