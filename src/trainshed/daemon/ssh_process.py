"""The process that serves plain ssh clients, where `ssh_port` asks for it."""

from __future__ import annotations

import asyncio
import logging
import signal

from trainshed.daemon.process import begin

__all__ = ["main"]


def main() -> int:
    """Serve until SIGTERM."""
    process = begin("ssh")
    from trainshed.api.ssh.server import serve
    from trainshed.services.platform import open_platform

    logging.getLogger("asyncssh").setLevel(logging.WARNING)
    platform = open_platform(process.home, process.settings)

    async def run() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await serve(
            platform,
            process.settings.host,
            process.settings.ssh_port,
            stop,
            lambda port: process.say_ready(),
        )

    asyncio.run(run())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
