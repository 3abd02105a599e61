"""Serving the object store in this process, alone or beside others, until its end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from trainshed.daemon.http_server import watch_certificate_file
from trainshed.daemon.store_crew import Crew, Pace

if TYPE_CHECKING:
    import ssl

    from trainshed.api.obs.wire.lobby import Handler
    from trainshed.daemon.tls import CertificateWatch

__all__ = ["serve_beside", "serve_store"]

_STOP_SECONDS = 5.0
_OBJECTS_PER_COLLECTION = 20_000


def serve_store(
    handler: Handler,
    host: str,
    port: int,
    on_ready: Callable[[], None],
    *,
    mate: Sequence[str] = (),
    most: int = 1,
    pace: Pace | None = None,
    tls: CertificateWatch | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. Requests under way have some seconds to end.

    Under load up to `most` processes do so; `mate` is the command of a further one. With TLS it also ends when its
    certificate was renewed: the supervisor starts it again with the new one.
    """

    async def serve() -> bool:
        from trainshed.api.obs.wire.server import Server, open_listeners

        server = Server(handler, tls=_make_context(tls))
        stop = _stop_event()
        listeners = open_listeners(host, port)
        await server.open(listeners)
        crew = Crew(mate, server, listeners, most, pace)
        on_ready()
        tasks = [asyncio.create_task(crew.keep())]
        if tls:
            tasks.append(asyncio.create_task(watch_certificate_file(tls, stop.set)))
        try:
            await stop.wait()
        finally:
            for task in tasks:
                task.cancel()
        _, is_over = await asyncio.gather(crew.stop(_STOP_SECONDS), server.close(_STOP_SECONDS))
        return is_over

    _run(serve)


def serve_beside(
    handler: Handler,
    listeners: Sequence[int],
    on_ready: Callable[[], None],
    *,
    tls: CertificateWatch | None = None,
) -> None:
    """Serve on ports that another process has opened, and do what it says on the standard input.

    `share N`: have one of N clients connect anew. `retire`: end with the last of the requests under way. `stop`, or
    the end of the input: give them some seconds.
    """

    async def serve() -> bool:
        from trainshed.api.obs.wire.server import Server

        server = Server(handler, tls=_make_context(tls))
        stop = _stop_event()
        retiring: list[asyncio.Task[None]] = []

        def listen() -> None:
            try:
                words = os.read(0, 1024).decode().splitlines()
            except BlockingIOError:
                return
            if not words:
                asyncio.get_running_loop().remove_reader(0)
                stop.set()
            for word in words:
                if word.startswith("share "):
                    server.share_out(int(word[6:]))
                elif word == "retire" and not retiring:
                    retiring.append(asyncio.create_task(server.retire()))
                    retiring[0].add_done_callback(lambda _: stop.set())
                elif word == "stop":
                    stop.set()

        os.set_blocking(0, False)
        asyncio.get_running_loop().add_reader(0, listen)
        # The first process answers for all when the disk hangs.
        await server.open([socket.socket(fileno=number) for number in listeners], is_alone=False)
        on_ready()
        await stop.wait()
        for task in retiring:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        return await server.close(_STOP_SECONDS)

    _run(serve)


def _make_context(tls: CertificateWatch | None) -> ssl.SSLContext | None:
    from trainshed.api.obs.wire.server import make_tls_context

    return make_tls_context(tls.files.certificate, tls.files.key) if tls else None


def _stop_event() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def _run(serve: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    import uvloop

    # What is there now stays: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    # Of what a request leaves behind next to nothing needs the collector: every hundred requests is often enough.
    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if not runner.run(serve()):
            logging.getLogger("trainshed").info(
                "Stopped with connections still open after %g s.", _STOP_SECONDS
            )
            logging.shutdown()
            # Every write is atomic and every client begins again: there is nothing to unwind.
            os._exit(0)
