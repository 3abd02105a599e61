"""A job that tries to reach through the broker what is not its own."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from pathlib import Path
from typing import Any

import pytest

from trainshed.runner.broker import server
from trainshed.store.embedded import file_window, near_copy
from trainshed.store.object_store import ObjectStore


def receive_answer(connection: socket.socket) -> dict[str, Any]:
    with connection.makefile("rb") as file:
        head = file.read(4)
        if len(head) < 4:
            return {"closed": True}
        answer: dict[str, Any] = json.loads(file.read(struct.unpack(">I", head)[0]))
    return answer


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/cache/../../secret",
        "/cache/./x",
        "/cache//x",
        "/proc/self/root/etc/passwd",
        "/proc/1/cwd",
        "/opt/environment/x",
        "/cachet/x",
        "cache/x",
        "",
        "/",
        "/cache/\0",
        "/cache/" + "x" * 300,
        "/cache/" + "x/" * 3000,
        "/run/trainshed/broker.sock",
    ],
)
def test_only_folders_that_the_job_may_write_are_used(job: Any, store: ObjectStore, path: str) -> None:
    store.put("mine", "a/b", b"x")
    before = sorted(job.folder.rglob("*"))
    assert job.refusal("download", bucket="mine", key="a/b", path=path) == "path_refused"
    assert job.refusal("download_tree", bucket="mine", prefix="a/", path=path) == "path_refused"
    assert job.refusal("upload", path=path, bucket="mine", key="stolen") == "path_refused"
    assert job.refusal("upload_tree", path=path, bucket="mine", prefix="stolen/") == "path_refused"
    assert sorted(job.folder.rglob("*")) == before
    assert [info.key for info in store.walk("mine")] == ["a/b"]


@pytest.mark.parametrize("bucket", ["foreign", ".code", ".jobs", "missing", "../mine", "", "x" * 5000])
def test_buckets_of_others_do_not_exist(job: Any, store: ObjectStore, bucket: str) -> None:
    (job.cache / "file").write_bytes(b"x")
    store.put("mine", "a/b", b"x")
    place = {"bucket": bucket, "key": "secret"}
    for op, fields in (
        ("info", place),
        ("read", {**place, "start": 0, "length": 10}),
        ("list", {"bucket": bucket, "prefix": "", "delimiter": "", "after": "", "limit": 10}),
        ("write", place),
        ("append", place),
        ("make_folder", place),
        ("remove", place),
        ("remove_tree", {"bucket": bucket, "prefix": ""}),
        ("copy", {**place, "to_bucket": "mine", "to_key": "x"}),
        ("copy", {"bucket": "mine", "key": "a/b", "to_bucket": bucket, "to_key": "x"}),
        ("copy_tree", {"bucket": bucket, "prefix": "", "to_bucket": "mine", "to_prefix": "x/"}),
        ("copy_tree", {"bucket": "mine", "prefix": "", "to_bucket": bucket, "to_prefix": "x/"}),
        ("download", {**place, "path": "/cache/x"}),
        ("download_tree", {"bucket": bucket, "prefix": "", "path": "/cache/x"}),
        ("upload", {**place, "path": "/cache/file"}),
        ("upload_tree", {"bucket": bucket, "prefix": "", "path": "/cache"}),
    ):
        assert job.refusal(op, **fields) == "no_such_bucket", op
    assert [info.key for info in store.walk("mine")] == ["a/b"]
    assert [info.key for info in store.walk("foreign")] == ["secret"]
    assert not (job.cache / "x").exists()


def test_links_are_not_followed(job: Any, store: ObjectStore, tmp_path: Path) -> None:
    store.put("mine", "a/b", b"x")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (job.cache / "folder").symlink_to(outside)
    (job.cache / "file").symlink_to(outside / "secret")
    (job.cache / "magic").symlink_to("/proc/self/root")
    os.mkfifo(job.cache / "pipe")
    for path in ("/cache/file", "/cache/folder/secret", "/cache/magic/etc/passwd", "/cache/pipe"):
        assert job.refusal("upload", path=path, bucket="mine", key="stolen") in ("clash", "local_failed")
    for path in ("/cache/folder", "/cache/magic/etc"):
        assert "error" in job.ask("upload_tree", path=path, bucket="mine", prefix="stolen/")
        assert "error" in job.ask("download_tree", bucket="mine", prefix="a/", path=path)
        assert "error" in job.ask("download", bucket="mine", key="a/b", path=f"{path}/b")
    # A link in the place of the file itself is replaced, and what it points to stays as it is.
    job.ask("download", bucket="mine", key="a/b", path="/cache/file")
    assert (job.cache / "file").read_bytes() == b"x" and not (job.cache / "file").is_symlink()
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"
    assert [info.key for info in store.walk("mine")] == ["a/b"]


def test_links_that_are_swapped_in_during_a_copy_lead_nowhere(
    job: Any, store: ObjectStore, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    for number in range(100):
        store.put("mine", f"data/sub/{number}", b"x")
    done = threading.Event()
    folder, aside = job.cache / "target" / "sub", job.cache / "target" / "aside"

    def swap() -> None:
        while not done.is_set():
            try:
                os.rename(folder, aside)
                os.symlink(outside, folder)
                os.unlink(folder)
                os.rename(aside, folder)
            except OSError:
                continue

    (job.cache / "target/sub").mkdir(parents=True)
    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(5):
            job.ask("download_tree", bucket="mine", prefix="data/", path="/cache/target")
            job.ask("upload_tree", path="/cache/target", bucket="mine", prefix="up/")
    finally:
        done.set()
        thread.join()
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert not [info.key for info in store.walk("mine", "up/") if info.key.endswith("secret")]


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\xff" * 100,
        struct.pack(">I", 0),
        struct.pack(">I", 4) + b"null",
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 60000) + b"[" * 60000,
        struct.pack(">I", 3) + b"\xff\xfe\xfd",
        struct.pack(">I", 2**31),
        b"",
        b"\0",
    ],
    ids=range(10),
)
def test_garbage_ends_its_own_connection_only(job: Any, data: bytes) -> None:
    with job.connect() as connection:
        connection.sendall(data)
        connection.shutdown(1)
        answer = receive_answer(connection)
    assert answer == {"closed": True} or answer["error"]["code"] == "invalid_input"
    assert job.ask("info", bucket="mine", key="")["kind"] == "folder"


@pytest.mark.parametrize(
    "request_",
    [
        {"op": "_check"},
        {"op": "__init__"},
        {"op": ["info"]},
        {},
        {"op": "info", "bucket": "mine"},
        {"op": "info", "bucket": "mine", "key": "x", "self": 1},
        {"op": "info", "bucket": "mine", "key": 5},
        {"op": "info", "bucket": "mine", "key": ["x"]},
        {"op": "read", "bucket": "mine", "key": "x", "start": True, "length": 1},
        {"op": "read", "bucket": "mine", "key": "x", "start": "0", "length": 1},
        {"op": "write", "bucket": "mine", "key": "x", "body": "x"},
        {"op": "upload_tree", "path": "/cache", "bucket": "mine", "prefix": "x/", "on_progress": "x"},
        {"op": "info", "bucket": "mine", "key": "a\0b"},
        {"op": "list", "bucket": "mine", "prefix": "\ud800", "delimiter": "", "after": "", "limit": 1},
    ],
    ids=range(14),
)
def test_odd_requests_are_refused(job: Any, request_: dict[str, Any]) -> None:
    with job.connect() as connection:
        data = json.dumps(request_).encode()
        connection.sendall(struct.pack(">I", len(data)) + data)
        assert receive_answer(connection)["error"]["code"] == "invalid_input"


def test_huge_numbers_and_pieces_take_no_memory(job: Any, store: ObjectStore) -> None:
    store.put("mine", "a", b"12345")
    huge = 10**300
    assert job.ask("read", bucket="mine", key="a", start=0, length=huge)["data"] == b"12345"
    assert job.ask("read", bucket="mine", key="a", start=huge, length=1)["data"] == b""
    assert job.ask("read", bucket="mine", key="a", start=-huge, length=huge)["data"] == b""
    assert job.ask("read", bucket="mine", key="a", start=0, length=-huge)["data"] == b""
    assert job.ask("write", body=[], bucket="mine", key="ok")["size"] == 0
    with job.connect() as connection:
        data = b'{"op": "write", "bucket": "mine", "key": "big"}'
        connection.sendall(struct.pack(">I", len(data)) + data + struct.pack(">I", 2**32 - 1))
        answer = receive_answer(connection)
    assert answer["error"]["code"] == "invalid_input"
    assert [info.key for info in store.walk("mine")] == ["a", "ok"]


def test_many_connections_wait_their_turn(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SILENCE_SECONDS", 1.0)
    idle = [job.connect() for _ in range(3 * server.MOST_CONNECTIONS)]
    assert job.ask("info", bucket="mine", key="")["kind"] == "folder"
    assert sum(1 for thread in threading.enumerate() if "_serve" in thread.name) <= server.MOST_CONNECTIONS
    for connection in idle:
        connection.close()


def test_a_copy_that_nobody_waits_for_ends(
    job: Any, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_LOOK_EVERY", 0.0)
    began, gone = threading.Event(), threading.Event()
    for number in range(200):
        store.put("mine", f"data/{number}", b"x")
    copy = file_window.copy_file

    def slow_copy(source: int, target: int, size: int) -> None:
        began.set()
        gone.wait(90)
        copy(source, target, size)

    monkeypatch.setattr(near_copy, "copy_file", slow_copy)
    with job.connect() as connection:
        data = b'{"op": "download_tree", "bucket": "mine", "prefix": "data/", "path": "/cache/data"}'
        connection.sendall(struct.pack(">I", len(data)) + data)
        assert began.wait(90)
    gone.set()
    job.broker.close()
    assert len(list((job.cache / "data").iterdir())) < 200
