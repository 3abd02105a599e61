"""A broker with its store and a job's folders, and a client that speaks the broker's protocol by hand."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainshed.runner.broker import Broker
from trainshed.runner.sandbox.stage import Binding
from trainshed.store.object_store import ObjectStore

JOB_UID = 65534


class Job:
    """What a job has: a socket, and folders under paths of its own."""

    def __init__(self, folder: Path, store: ObjectStore) -> None:
        self.folder = folder
        self.store = store
        self.socket = folder / "broker.sock"
        self.cache = folder / "root" / "cache"
        self.tmp = folder / "root" / "tmp"
        self.read_only = folder / "root" / "environment"
        for path in (self.cache, self.tmp, self.read_only):
            path.mkdir(parents=True)
            if os.geteuid() == 0:
                os.chown(path, JOB_UID, JOB_UID)
        self.broker = Broker(self.socket)

    def start(self) -> None:
        self.broker.start(
            [
                Binding(str(self.cache), "/cache", True),
                Binding(str(self.tmp), "/tmp", True),
                Binding(str(self.read_only), "/opt/environment", False),
            ],
            lambda: self.store,
            "ours",
        )

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(60)
        connection.connect(str(self.socket))
        return connection

    def ask(self, op: str, body: list[bytes] | None = None, **fields: Any) -> dict[str, Any]:
        """Send a request; the answer, with the bytes of a read under `data`."""
        with self.connect() as connection:
            request = json.dumps({"op": op, **fields}).encode()
            connection.sendall(struct.pack(">I", len(request)) + request)
            for piece in body or []:
                connection.sendall(struct.pack(">I", len(piece)) + piece)
            if body is not None:
                connection.sendall(struct.pack(">I", 0))
            return receive_answer(connection)

    def refusal(self, op: str, **fields: Any) -> str:
        """The code of the error that a request is answered with."""
        code: str = self.ask(op, **fields)["error"]["code"]
        return code


def receive_answer(connection: socket.socket) -> dict[str, Any]:
    with connection.makefile("rb") as file:
        head = file.read(4)
        if len(head) < 4:
            return {"closed": True}
        answer: dict[str, Any] = json.loads(file.read(struct.unpack(">I", head)[0]))
        if "length" in answer:
            answer["data"] = file.read(answer["length"])
    return answer


@pytest.fixture
def job(tmp_path: Path, store: ObjectStore) -> Iterator[Job]:
    """A job of the workspace `ours`, with a bucket of its own and one of another workspace."""
    store.create_bucket("mine", "ours")
    store.create_bucket("foreign", "theirs")
    store.put("foreign", "secret", b"secret")
    made = Job(tmp_path / "node-0", store)
    made.start()
    yield made
    made.broker.close()
