"""Serving an ASGI application in this process until SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Any

__all__ = ["serve"]

# Followers of a log hold their connection open for hours: they reconnect, so a stop need not wait for them.
_STOP_SECONDS = 3


def serve(app: Any, host: str, port: int, on_ready: Callable[[], None]) -> None:
    """Serve the application; returns after SIGTERM or SIGINT, when the requests under way were answered."""
    asyncio.run(_serve(app, host, port, on_ready))


async def _serve(app: Any, host: str, port: int, on_ready: Callable[[], None]) -> None:
    from granian.constants import Interfaces
    from granian.server.embed import Server

    server = Server(
        app,
        address=host,
        port=port,
        interface=Interfaces.ASGI,
        websockets=False,
        log_enabled=False,
        log_access=False,
        backlog=1024,
    )
    # The library calls its embedded form experimental on every start; we decided on it knowingly.
    logging.getLogger("_granian").setLevel(logging.ERROR)
    server.workers_kill_timeout = _STOP_SECONDS
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    announcing = asyncio.create_task(_announce(host, port, on_ready))
    try:
        await server.serve()
    except TimeoutError:
        logging.getLogger("trainshed").info("Connections were still open after %s s; closed.", _STOP_SECONDS)
    finally:
        announcing.cancel()
    if not server.interrupt_signal:
        raise SystemExit(1)


async def _announce(host: str, port: int, on_ready: Callable[[], None]) -> None:
    """Call `on_ready` when the port answers."""
    target = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    while True:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(target, port), 5)
        except (OSError, TimeoutError):
            await asyncio.sleep(0.02)
            continue
        writer.close()
        on_ready()
        return
