"""What a job can do through the broker."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from trainshed.store.object_store import ObjectStore

JOB_UID = 65534


def test_bytes_go_there_and_back(job: Any, store: ObjectStore) -> None:
    assert job.ask("write", body=[b"hello ", b"world"], bucket="mine", key="a/b.txt")["size"] == 11
    answer = job.ask("read", bucket="mine", key="a/b.txt", start=6, length=100)
    assert (answer["data"], answer["size"]) == (b"world", 11)
    assert job.ask("append", body=[b"!"], bucket="mine", key="a/b.txt")["size"] == 12
    assert job.ask("append", body=[b"new"], bucket="mine", key="a/new")["size"] == 3
    with store.open("mine", "a/b.txt") as file:
        assert file.read() == b"hello world!"
    assert job.ask("read", bucket="mine", key="a/b.txt", start=99, length=5)["data"] == b""
    assert job.refusal("read", bucket="mine", key="nothing", start=0, length=5) == "no_such_key"


def test_it_tells_what_lies_at_a_key(job: Any, store: ObjectStore) -> None:
    store.put("mine", "a/b", b"12")
    store.put_folder("mine", "empty/")

    def kind(key: str) -> str:
        found: str = job.ask("info", bucket="mine", key=key)["kind"]
        return found

    assert [kind(key) for key in ("a/b", "a", "a/", "empty", "", "a/b/", "c")] == [
        "file",
        "folder",
        "folder",
        "folder",
        "folder",
        "",
        "",
    ]
    page = job.ask("list", bucket="mine", prefix="", delimiter="/", after="", limit=10)
    assert (page["folders"], page["objects"], page["next"]) == (["a/", "empty/"], [], "")
    page = job.ask("list", bucket="mine", prefix="a/", delimiter="", after="", limit=10**9)
    assert [item[:2] for item in page["objects"]] == [["a/b", 2]]


def test_objects_are_copied_and_removed(job: Any, store: ObjectStore) -> None:
    store.put("mine", "a/1", b"1")
    store.put("mine", "a/2", b"2")
    job.ask("copy", bucket="mine", key="a/1", to_bucket="mine", to_key="b")
    assert job.ask("copy_tree", bucket="mine", prefix="a/", to_bucket="mine", to_prefix="c/")["files"] == 2
    job.ask("make_folder", bucket="mine", key="d")
    assert [info.key for info in store.walk("mine")] == ["a/1", "a/2", "b", "c/1", "c/2", "d/"]
    assert job.ask("remove", bucket="mine", key="b") == {"removed": 1}
    assert job.ask("remove_tree", bucket="mine", prefix="a/") == {"removed": 2}
    assert job.refusal("remove_tree", bucket="mine", prefix="c") == "invalid_input"
    assert [info.key for info in store.walk("mine")] == ["c/1", "c/2", "d/"]


def test_files_and_folders_come_down_as_the_jobs_own(job: Any, store: ObjectStore) -> None:
    for number in range(50):
        store.put("mine", f"data/{number % 5}/{number}.bin", b"x" * number)
    store.put("mine", "run.sh", b"#!/bin/sh", metadata={"mode": "755"})
    answer = job.ask("download_tree", bucket="mine", prefix="data/", path="/cache/new/data")
    assert (answer["files"], answer["bytes"], answer["skipped_count"]) == (50, sum(range(50)), 0)
    job.ask("download", bucket="mine", key="run.sh", path="/tmp/deep/run.sh")
    assert (job.cache / "new/data/3/48.bin").read_bytes() == b"x" * 48
    assert (job.tmp / "deep/run.sh").stat().st_mode & 0o777 == 0o755
    if os.geteuid() == 0:
        made = [*(job.cache / "new").rglob("*"), job.cache / "new", job.tmp / "deep"]
        assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(JOB_UID, JOB_UID)}
    # A copy, never the stored file itself: the job may do with it what it likes.
    assert all(path.stat().st_nlink == 1 for path in (job.cache / "new").rglob("*.bin"))
    (job.cache / "new/data/3/48.bin").write_bytes(b"changed")
    with store.open("mine", "data/3/48.bin") as file:
        assert file.read() == b"x" * 48


def test_files_and_folders_go_up(job: Any, store: ObjectStore, tmp_path: Path) -> None:
    (job.cache / "out/deep").mkdir(parents=True)
    (job.cache / "out/deep/model.ckpt").write_bytes(b"weights")
    (job.cache / "out/log").write_bytes(b"")
    (job.cache / "out/link").symlink_to("log")
    answer = job.ask("upload_tree", path="/cache/out", bucket="mine", prefix="result/")
    assert (answer["files"], answer["skipped"]) == (2, [["link", "it is a symbolic link"]])
    job.ask("upload", path="/cache/out/deep/model.ckpt", bucket="mine", key="best")
    assert [info.key for info in store.walk("mine")] == ["best", "result/deep/model.ckpt", "result/log"]


def test_a_clash_of_file_and_folder_is_told(job: Any, store: ObjectStore) -> None:
    store.put("mine", "a", b"file")
    store.put("mine", "a/b", b"below a file")
    (job.cache / "in-the-way").mkdir()
    assert job.refusal("download", bucket="mine", key="a", path="/cache/in-the-way") == "clash"
    assert job.refusal("download", bucket="mine", key="a", path="/cache") == "clash"
    answer = job.ask("download_tree", bucket="mine", prefix="", path="/cache/all")
    assert answer["skipped"] == [["a/b", "'a' is an object and cannot be a folder too"]]
    answer = job.ask("upload", path="/cache/missing", bucket="mine", key="x")
    assert answer["error"]["code"] == "clash"


def test_two_appends_at_once_lose_nothing(job: Any, store: ObjectStore) -> None:
    def work() -> None:
        for _ in range(5):
            job.ask("append", body=[b"line\n"], bucket="mine", key="log")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.info("mine", "log").size == 100


def test_an_upload_that_is_cut_off_leaves_nothing(job: Any, store: ObjectStore) -> None:
    connection = job.connect()
    request = b'{"op": "write", "bucket": "mine", "key": "half"}'
    connection.sendall(len(request).to_bytes(4, "big") + request + (100).to_bytes(4, "big") + b"only some")
    connection.close()
    # The next answer proves that the broker lives; the object must not.
    assert job.ask("info", bucket="mine", key="half")["kind"] == ""


def test_closing_ends_connections_and_removes_the_socket(job: Any) -> None:
    with job.connect() as connection:
        job.broker.close()
        assert connection.recv(1) == b""
    assert not job.socket.exists()
    with pytest.raises(OSError), socket.socket(socket.AF_UNIX) as other:
        other.connect(str(job.socket))
