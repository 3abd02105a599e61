"""Serving an ASGI application in this process until SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainshed.daemon.tls import CertificateWatch

__all__ = ["serve", "watch_certificate_file"]

# How often a server looks whether its certificate was renewed.
LOOK_SECONDS = 60.0


def serve(
    app: Any,
    host: str,
    port: int,
    on_ready: Callable[[], None],
    *,
    stop_seconds: int = 5,
    tls: CertificateWatch | None = None,
    websockets: bool = False,
) -> None:
    """Serve the application until SIGTERM or SIGINT. Requests under way have `stop_seconds` to end.

    With TLS it also ends when its certificate was renewed: the supervisor starts it again with the new one.
    """
    asyncio.run(_serve(app, host, port, on_ready, stop_seconds, tls, websockets))


async def _serve(
    app: Any,
    host: str,
    port: int,
    on_ready: Callable[[], None],
    stop_seconds: int,
    tls: CertificateWatch | None,
    websockets: bool,
) -> None:
    from granian.constants import HTTPModes, Interfaces, SSLProtocols
    from granian.server.embed import Server

    server = Server(
        app,
        address=host,
        port=port,
        interface=Interfaces.ASGI,
        websockets=websockets,
        log_enabled=False,
        log_access=False,
        backlog=1024,
        ssl_cert=tls.files.certificate if tls else None,
        ssl_key=tls.files.key if tls else None,
        # Clients of old systems speak no later one.
        ssl_protocol_min=SSLProtocols.tls12,
        # Over HTTP/2 the library breaks the answer to a HEAD, and S3 itself speaks none.
        http=HTTPModes.http1 if tls else HTTPModes.auto,
    )
    # The library calls its embedded form experimental on every start; we decided on it knowingly.
    logging.getLogger("_granian").setLevel(logging.ERROR)
    server.workers_kill_timeout = stop_seconds
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    announcing = asyncio.create_task(_announce(host, port, on_ready))
    watching = asyncio.create_task(watch_certificate_file(tls, server.stop)) if tls else None
    try:
        await server.serve()
    except TimeoutError:
        logging.getLogger("trainshed").info("Stopped with connections still open after %s s.", stop_seconds)
        logging.shutdown()
        # Every write is atomic and every client begins again: there is nothing to unwind, and unwinding
        # tasks that the server has dropped already only fills the log with tracebacks.
        os._exit(0)
    finally:
        announcing.cancel()
        if watching is not None:
            watching.cancel()
    if not server.interrupt_signal:
        raise SystemExit(1)


async def watch_certificate_file(tls: CertificateWatch, stop: Callable[[], None]) -> None:
    """Call `stop` when another certificate is to be used."""
    await asyncio.sleep(LOOK_SECONDS)
    while not await asyncio.to_thread(tls.is_replaced):
        await asyncio.sleep(LOOK_SECONDS)
    logging.getLogger("trainshed").info("The certificate was renewed: starting again with the new one.")
    stop()


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
