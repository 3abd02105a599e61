"""Carries connections from a job's loopback to the platform's own addresses, and nowhere else."""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time

from trainshed.runner.sandbox import namespace
from trainshed.runner.sandbox.spec import Forward

__all__ = ["Relay"]

PIECE = 256 * 1024
MOST_CONNECTIONS = 2048


class _Pipe:
    """One direction of a connection."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source = source
        self.sink = sink
        self.waiting = memoryview(b"")
        self.has_ended = False


class _Link:
    """A connection: the job's side, the platform's side, both directions."""

    def __init__(self, inside: socket.socket, outside: socket.socket) -> None:
        self.inside = inside
        self.outside = outside
        self.is_connected = False
        self.up = _Pipe(inside, outside)
        self.down = _Pipe(outside, inside)


class Relay:
    """Takes connections on sockets that listen inside the sandbox and connects them to their targets.

    One thread serves all of them; a direction holds at most one piece, so that a slow reader slows its
    writer and memory stays bounded.
    """

    def __init__(
        self, listeners: list[socket.socket], forwards: tuple[Forward, ...], network: int = -1
    ) -> None:
        # With `network`, a descriptor, the targets are looked for in there.
        self._network = network
        self._selector = selectors.DefaultSelector()
        self._links: set[_Link] = set()
        self._listeners = dict(zip(listeners, forwards, strict=True))
        self._bell, self._button = os.pipe()
        self._buffer = bytearray(PIECE)
        self._thread = threading.Thread(target=self._run, name="sandbox-relay", daemon=True)
        for listener in listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._thread.start()

    def close(self) -> None:
        """Stop, and cut every connection."""
        os.close(self._button)
        self._thread.join(5)

    def _run(self) -> None:
        try:
            if self._network >= 0:
                namespace.join_network(self._network)
            while True:
                for key, events in self._selector.select():
                    if key.fileobj == self._bell:
                        return
                    if isinstance(key.data, _Link):
                        self._serve(key.data, key.fileobj, events)
                    elif isinstance(key.fileobj, socket.socket):
                        self._accept(key.fileobj)
        finally:
            for link in list(self._links):
                self._drop(link)
            for listener in self._listeners:
                listener.close()
            self._selector.close()
            os.close(self._bell)

    def _accept(self, listener: socket.socket) -> None:
        try:
            inside, _ = listener.accept()
        except OSError:
            # Out of descriptors, most likely: do not spin until some are closed.
            time.sleep(0.02)
            return
        forward = self._listeners[listener]
        outside = None
        try:
            if len(self._links) >= MOST_CONNECTIONS:
                raise OSError("too many connections")
            family = socket.AF_INET6 if ":" in forward.host else socket.AF_INET
            outside = socket.socket(family, socket.SOCK_STREAM)
            for side in (inside, outside):
                side.setblocking(False)
                if side.family != socket.AF_UNIX:
                    side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            outside.connect_ex((forward.host, forward.to_port))
        except OSError:
            inside.close()
            if outside is not None:
                outside.close()
            return
        link = _Link(inside, outside)
        self._links.add(link)
        self._selector.register(outside, selectors.EVENT_WRITE, link)

    def _serve(self, link: _Link, side: object, events: int) -> None:
        if link not in self._links:
            return
        try:
            if not link.is_connected:
                error = link.outside.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if error:
                    raise OSError(error, os.strerror(error))
                link.is_connected = True
            else:
                for pipe in (link.up, link.down):
                    if (events & selectors.EVENT_WRITE and pipe.sink is side) or (
                        events & selectors.EVENT_READ and pipe.source is side
                    ):
                        self._move(pipe)
            if link.up.has_ended and link.down.has_ended:
                self._drop(link)
            else:
                self._watch(link)
        except OSError:
            self._drop(link)

    def _move(self, pipe: _Pipe) -> None:
        if not pipe.waiting and not pipe.has_ended:
            try:
                size = pipe.source.recv_into(self._buffer)
            except BlockingIOError:
                return
            if size == 0:
                pipe.has_ended = True
                try:
                    pipe.sink.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
                return
            sent = self._send(pipe.sink, memoryview(self._buffer)[:size])
            if sent < size:
                pipe.waiting = memoryview(bytes(memoryview(self._buffer)[sent:size]))
        elif pipe.waiting:
            pipe.waiting = pipe.waiting[self._send(pipe.sink, pipe.waiting) :]

    @staticmethod
    def _send(sink: socket.socket, data: memoryview) -> int:
        try:
            return sink.send(data)
        except BlockingIOError:
            return 0

    def _watch(self, link: _Link) -> None:
        for side, reads, writes in (
            (link.inside, link.up, link.down),
            (link.outside, link.down, link.up),
        ):
            wanted = 0
            if not reads.has_ended and not reads.waiting:
                wanted |= selectors.EVENT_READ
            if writes.waiting:
                wanted |= selectors.EVENT_WRITE
            known = self._selector.get_map().get(side)
            if known is None:
                if wanted:
                    self._selector.register(side, wanted, link)
            elif not wanted:
                self._selector.unregister(side)
            elif known.events != wanted:
                self._selector.modify(side, wanted, link)

    def _drop(self, link: _Link) -> None:
        self._links.discard(link)
        for side in (link.inside, link.outside):
            try:
                self._selector.unregister(side)
            except (KeyError, ValueError):
                pass
            side.close()
