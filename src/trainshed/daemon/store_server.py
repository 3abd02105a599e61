"""Serving the object store in this process until SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from trainshed.daemon.http_server import watch_certificate_file

if TYPE_CHECKING:
    from trainshed.api.obs.wire.lobby import Handler
    from trainshed.daemon.tls import CertificateWatch

__all__ = ["serve_store"]


def serve_store(
    handler: Handler,
    host: str,
    port: int,
    on_ready: Callable[[], None],
    *,
    stop_seconds: float = 5,
    tls: CertificateWatch | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. Requests under way have `stop_seconds` to end.

    With TLS it also ends when its certificate was renewed: the supervisor starts it again with the new one.
    """
    import uvloop

    # What is there now stays: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        is_over = runner.run(_serve(handler, host, port, on_ready, stop_seconds, tls))
        if not is_over:
            logging.getLogger("trainshed").info(
                "Stopped with connections still open after %s s.", stop_seconds
            )
            logging.shutdown()
            # Every write is atomic and every client begins again: there is nothing to unwind.
            os._exit(0)


async def _serve(
    handler: Handler,
    host: str,
    port: int,
    on_ready: Callable[[], None],
    stop_seconds: float,
    tls: CertificateWatch | None,
) -> bool:
    from trainshed.api.obs.wire.server import Server, make_tls_context

    context = make_tls_context(tls.files.certificate, tls.files.key) if tls else None
    server = Server(handler, tls=context)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await server.open(host, port)
    on_ready()
    watching = asyncio.create_task(watch_certificate_file(tls, stop.set)) if tls else None
    try:
        await stop.wait()
        return await server.close(stop_seconds)
    finally:
        if watching is not None:
            watching.cancel()
