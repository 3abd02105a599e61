"""The broker's socket: requests of the job's scripts, each on a connection of its own.

A request is a length (4 bytes, big-endian) and a JSON object: `op`, and the operation's fields. `write` and
`append` are followed by the bytes in pieces, each behind its length; a length of 0 ends them, and a connection
that ends earlier discards what it sent. The answer has the same form as the request: the operation's result or
`error`, and behind a `read`'s answer stand the `length` bytes that it names.

Everything that arrives is a stranger's: sizes, numbers and waits are bounded, and a request that cannot be
read ends its own connection and nothing else.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainshed.model.errors import InvalidInput, TrainshedError
from trainshed.runner.sandbox import Mount
from trainshed.runner.sandbox.stage import Binding

if TYPE_CHECKING:
    from trainshed.runner.broker.job_folders import JobFolders
    from trainshed.runner.broker.operations import Operations
    from trainshed.store.object_store import ObjectStore

__all__ = ["BROKER_PATH", "Broker"]

# Where a job finds the socket.
BROKER_PATH = "/run/trainshed/broker.sock"

MOST_CONNECTIONS = 64
# Folder copies use several threads each; more of them at once would only take memory.
MOST_TRANSFERS = 4
LARGEST_REQUEST = 64 << 10
LARGEST_PIECE = 4 << 20
SILENCE_SECONDS = 30.0
_LOOK_EVERY = 0.25

_WITH_BODY = frozenset({"write", "append"})
_TRANSFERS = frozenset({"download_tree", "upload_tree"})
_OPERATIONS = frozenset(
    {
        "info",
        "list",
        "read",
        "make_folder",
        "remove",
        "remove_tree",
        "copy",
        "copy_tree",
        "download",
        "upload",
    }
)


class _Abandoned(Exception):
    """The one who asked is gone, or the broker is about to end."""


class Broker:
    """Serves one node of a job. Make it before the sandbox starts (the socket is mounted into it), start it
    after: the kernel ties a job's life to the thread that started it, and the broker needs threads."""

    def __init__(self, socket_file: Path) -> None:
        self.mount = Mount(socket_file, BROKER_PATH)
        self._file = socket_file
        self._folders: JobFolders | None = None
        self._open_store: Callable[[], ObjectStore] | None = None
        self._workspace_id = ""
        self._operations: Operations | None = None
        self._listener = _listen(socket_file)
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._transfers = threading.BoundedSemaphore(MOST_TRANSFERS)
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def give_to(self, uid: int) -> None:
        """Let the job's user, and nobody else, connect."""
        os.chown(self._file, uid, uid)

    def start(
        self, bindings: Sequence[Binding], open_store: Callable[[], ObjectStore], workspace_id: str
    ) -> None:
        """Begin to serve: the job's writable folders are those of the bindings.

        The store is opened, and what works with it loaded, when somebody asks for something: few jobs do.
        """
        from trainshed.runner.broker.job_folders import JobFolders

        self._folders = JobFolders(bindings)
        self._open_store = open_store
        self._workspace_id = workspace_id
        self._thread = threading.Thread(target=self._accept, name="broker", daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """Whether somebody's request is being served."""
        return bool(self._connections)

    def close(self) -> None:
        """Stop: no new requests, and those at work end at their next step."""
        self._is_closing = True
        with self._lock:
            # Shutting down wakes the threads that wait for them; closing alone would not.
            for each in (self._listener, *self._connections):
                try:
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        if self._thread is not None:
            self._thread.join(5)
        self._listener.close()
        deadline = time.monotonic() + 5
        while self._connections and time.monotonic() < deadline:
            time.sleep(0.01)
        if self._folders is not None and not self._connections:
            self._folders.close()
        self._file.unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            self._room.acquire()
            try:
                connection, _ = self._listener.accept()
            except OSError:
                self._room.release()
                if self._is_closing:
                    return
                # Out of descriptors, most likely: do not spin until some are closed.
                time.sleep(0.02)
                continue
            with self._lock:
                self._connections.add(connection)
            if self._is_closing:
                self._drop(connection)
                return
            try:
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            except RuntimeError:
                self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)
            connection.close()
        self._room.release()

    def _serve(self, connection: socket.socket) -> None:
        from trainshed.store.folder_tree import FileGone

        try:
            connection.settimeout(SILENCE_SECONDS)
            try:
                answer, data = self._answer(connection)
            except _Abandoned:
                return
            except TrainshedError as fault:
                answer, data = {"error": {**fault.to_dict(), "status": fault.status}}, b""
            except FileGone as gone:
                answer, data = _failure("clash", f"It cannot be copied: {gone.reason}.", 409), b""
            except OSError as error:
                answer, data = _failure("local_failed", _explain(error), 500, error.errno or 0), b""
            except ValueError:
                answer, data = _failure("invalid_input", "A field of the request cannot be used.", 400), b""
            _send(connection, json.dumps(answer).encode(), data)
        except (OSError, _Abandoned):
            pass  # The other side is gone.
        finally:
            self._drop(connection)

    def _answer(self, connection: socket.socket) -> tuple[dict[str, Any], bytes]:
        request = _read_request(connection)
        name = request.pop("op", None)
        operation: Callable[..., Any] | None = None
        if isinstance(name, str) and name in _OPERATIONS | _WITH_BODY | _TRANSFERS:
            operation = getattr(self._find_operations(), name)
        if operation is None:
            raise InvalidInput(f"The broker knows no operation '{str(name)[:40]}'.")
        extra: dict[str, Any] = {}
        if name in _WITH_BODY:
            extra["body"] = _pieces(connection)
        elif name in _TRANSFERS:
            extra["on_progress"] = self._watch(connection)
        _check_fields(operation, request, extra)
        if name in _TRANSFERS:
            with self._transfers:
                return operation(**request, **extra), b""
        result = operation(**request, **extra)
        if name == "read":
            answer, data = result
            return {**answer, "length": len(data)}, data
        return result, b""

    def _find_operations(self) -> Operations:
        from trainshed.runner.broker.operations import Operations

        assert self._folders is not None and self._open_store is not None
        with self._lock:
            if self._operations is None:
                self._operations = Operations(self._open_store(), self._workspace_id, self._folders)
            return self._operations

    def _watch(self, connection: socket.socket) -> Callable[[int, int], None]:
        """Called after each file: ends a copy that nobody waits for any more."""
        poller = select.poll()
        poller.register(connection, select.POLLRDHUP)
        last = time.monotonic()

        def look(files: int, size: int) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last < _LOOK_EVERY:
                return
            last = now
            if self._is_closing or poller.poll(0):
                raise _Abandoned

        return look


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # A socket's path may have 107 bytes at most; this one is short wherever the run folder lies.
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.chmod(path, 0o600)
        listener.listen(512)
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(folder)
    return listener


def _receive(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        try:
            count = connection.recv_into(view)
        except OSError:
            count = 0
        if not count:
            raise _Abandoned
        view = view[count:]
    return data


def _read_request(connection: socket.socket) -> dict[str, Any]:
    (size,) = struct.unpack(">I", _receive(connection, 4))
    if size > LARGEST_REQUEST:
        raise InvalidInput(f"A request may have {LARGEST_REQUEST} bytes at most.")
    try:
        request = json.loads(bytes(_receive(connection, size)))
    except (ValueError, RecursionError) as error:
        raise InvalidInput("The request is not JSON.") from error
    if not isinstance(request, dict):
        raise InvalidInput("The request is not a JSON object.")
    return request


def _check_fields(operation: Callable[..., Any], request: dict[str, Any], extra: dict[str, Any]) -> None:
    import inspect

    kinds = {
        name: {"str": str, "int": int}[str(parameter.annotation)]
        for name, parameter in inspect.signature(operation).parameters.items()
        if name not in extra
    }
    if set(kinds) != set(request):
        raise InvalidInput(f"The request needs exactly these fields: op, {', '.join(kinds)}.")
    for name, kind in kinds.items():
        if type(request[name]) is not kind:
            raise InvalidInput(f"The field '{name}' is not of the kind {kind.__name__}.")
        if name != "path" and kind is str and "\0" in request[name]:
            raise InvalidInput(f"The field '{name}' has a NUL in it.")


def _pieces(connection: socket.socket) -> Iterator[bytes]:
    while True:
        (size,) = struct.unpack(">I", _receive(connection, 4))
        if size > LARGEST_PIECE:
            raise InvalidInput(f"A piece may have {LARGEST_PIECE} bytes at most.")
        if not size:
            return
        yield bytes(_receive(connection, size))


def _send(connection: socket.socket, answer: bytes, data: bytes) -> None:
    connection.sendall(struct.pack(">I", len(answer)) + answer)
    if data:
        connection.sendall(data)


def _failure(code: str, message: str, status: int, errno: int = 0) -> dict[str, Any]:
    error = {"code": code, "message": message, "hint": "", "where": "", "status": status, "errno": errno}
    return {"error": error}


def _explain(error: OSError) -> str:
    return f"A file of the job cannot be used: {error.strerror or 'it is not there any more'}."
