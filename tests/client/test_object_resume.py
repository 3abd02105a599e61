"""Transfers that end in the middle: the next try sends or fetches only the rest, and everything is verified."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import store_server
from trainshed.client import object_download
from trainshed.client.object_digest import (
    ObjectDigest,
    choose_part_size,
    combine_etags,
    equal_parts,
    parse_pieces,
)
from trainshed.client.object_folders import download_folder, upload_folder
from trainshed.client.objects import ObjectClient
from trainshed.model.errors import Conflict, Unavailable
from trainshed.store import open_store

server = store_server.server

MIB = 1 << 20


@pytest.fixture
def client(server: Any) -> Iterator[ObjectClient]:
    with ObjectClient(server.url, server.token) as client:
        yield client


@pytest.fixture
def bucket(client: ObjectClient) -> str:
    name = f"b-{uuid.uuid4().hex[:12]}"
    client.make_bucket(name)
    return name


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file of three parts."""
    path = tmp_path / "large"
    path.write_bytes(os.urandom(40 * MIB))
    return path


class Stop(Exception):
    """The end of the program, as far as a thread can have one."""


class Counter:
    """Counts bytes, and fails when there are enough."""

    def __init__(self, most: int = 1 << 60) -> None:
        self.most = most
        self.total = 0
        self._lock = threading.Lock()

    def __call__(self, count: int) -> None:
        with self._lock:
            self.total += count
            if self.total > self.most:
                raise Stop


def test_digests_of_parts() -> None:
    data = os.urandom(1000)
    etags = [hashlib.md5(data[at : at + 300]).hexdigest() for at in range(0, 1000, 300)]
    digest = ObjectDigest(equal_parts(1000, 300))
    for at in range(0, 1000, 7):
        digest.update(data[at : at + 7])
    assert digest.hexdigest() == combine_etags(etags) and digest.hexdigest().endswith("-4")
    longer = ObjectDigest([300, 300])
    longer.update(data)
    assert longer.hexdigest() != combine_etags(etags)
    assert parse_pieces("300x3,100") == [300, 300, 300, 100] and parse_pieces("") == []
    assert parse_pieces("1x99999999999") == [] and parse_pieces("a,b") == []
    assert equal_parts(0, 300) == [0] and equal_parts(600, 300) == [300, 300]
    assert len(equal_parts(5 << 40, choose_part_size(5 << 40))) <= 10_000


def test_an_upload_that_was_cut_off_sends_only_the_rest(
    client: ObjectClient, bucket: str, large: Path, server: Any
) -> None:
    with pytest.raises(Stop):
        client.put_file(large, bucket, "large", on_bytes=Counter(38 * MIB))
    assert [entry.key for entry in client.walk(bucket)] == []
    store = open_store(f"file://{server.home.store}")
    upload = store.list_uploads(bucket).uploads[0]
    before = {part.number: part for part in store.list_parts(bucket, "large", upload.upload_id).parts}
    assert before
    counter = Counter()
    entry = client.put_file(large, bucket, "large", on_bytes=counter)
    assert counter.total == entry.size == 40 * MIB and entry.etag.endswith("-3")
    assert store.list_uploads(bucket).uploads == ()
    store.close()
    assert b"".join(client.stream(bucket, "large")) == large.read_bytes()
    # The file alone tells that nothing changed, without its time.
    os.utime(large, (1, 1))
    report = upload_folder(client, large.parent, bucket, "", only_changed=True)
    assert (report.files, report.unchanged) == (0, 1)


def test_another_file_is_not_continued(client: ObjectClient, bucket: str, large: Path) -> None:
    with pytest.raises(Stop):
        client.put_file(large, bucket, "large", on_bytes=Counter(30 * MIB))
    # The same size and time, other bytes: the parts that are there do not fit.
    facts = large.stat()
    data = os.urandom(40 * MIB)
    large.write_bytes(data)
    os.utime(large, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    client.put_file(large, bucket, "large")
    assert client.read(bucket, "large") == data


def test_a_file_that_changes_meanwhile_is_refused(client: ObjectClient, bucket: str, large: Path) -> None:
    def disturb(_: int) -> None:
        os.utime(large, (5, 5))

    with pytest.raises(Conflict, match="changed while"):
        client.put_file(large, bucket, "large", on_bytes=disturb)
    assert [entry.key for entry in client.walk(bucket)] == []


def test_a_download_that_was_cut_off_fetches_only_the_rest(
    client: ObjectClient, bucket: str, large: Path, tmp_path: Path
) -> None:
    client.put_file(large, bucket, "large")
    target = tmp_path / "back" / "large"
    with pytest.raises(Stop):
        client.get_file(bucket, "large", target, on_bytes=Counter(25 * MIB))
    left = sorted(os.listdir(target.parent))
    assert len(left) == 2 and all(object_download.is_unfinished(name) for name in left)
    held = next(path for path in target.parent.iterdir() if path.suffix == ".part").stat().st_size
    assert held >= 20 * MIB
    steps: list[int] = []
    client.get_file(bucket, "large", target, on_bytes=steps.append)
    # What was there already is told first, in one step.
    assert steps[0] == held - 1 and sum(steps) == 40 * MIB
    assert target.read_bytes() == large.read_bytes() and os.listdir(target.parent) == ["large"]


def test_a_beginning_that_is_damaged_or_stale_is_not_used(
    client: ObjectClient, bucket: str, large: Path, tmp_path: Path
) -> None:
    client.put_file(large, bucket, "large")
    target = tmp_path / "back" / "large"
    for harm in ("damaged", "stale"):
        with pytest.raises(Stop):
            client.get_file(bucket, "large", target, on_bytes=Counter(25 * MIB))
        if harm == "damaged":
            part = next(path for path in target.parent.iterdir() if path.suffix == ".part")
            with part.open("r+b") as file:
                file.write(b"xxxx")
        else:
            large.write_bytes(os.urandom(40 * MIB))
            client.put_file(large, bucket, "large")
        client.get_file(bucket, "large", target)
        assert target.read_bytes() == large.read_bytes() and os.listdir(target.parent) == ["large"]
        target.unlink()


def test_two_downloads_to_one_place(client: ObjectClient, bucket: str, large: Path, tmp_path: Path) -> None:
    client.put_file(large, bucket, "large")
    target = tmp_path / "back" / "large"
    faults: list[BaseException] = []

    def fetch() -> None:
        try:
            client.get_file(bucket, "large", target)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not faults and target.read_bytes() == large.read_bytes()
    assert os.listdir(target.parent) == ["large"]


def test_damage_on_the_way_is_noticed_in_parts_too(
    client: ObjectClient, bucket: str, large: Path, server: Any
) -> None:
    client.put_file(large, bucket, "large")
    store = open_store(f"file://{server.home.store}")
    with store.open_object(bucket, "large")[1] as source:
        blob = Path(f"/proc/self/fd/{source.fileno()}").resolve()
    store.close()
    mode = blob.stat().st_mode
    blob.chmod(0o600)
    with blob.open("r+b") as file:
        file.seek(20 * MIB)
        file.write(b"rot")
    blob.chmod(mode)
    with pytest.raises(Unavailable) as caught:
        client.read(bucket, "large")
    assert caught.value.code == "checksum_mismatch"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["up", "down"])
def test_a_killed_sync_is_continued(server: Any, client: ObjectClient, tmp_path: Path, way: str) -> None:
    bucket = f"b-{uuid.uuid4().hex[:12]}"
    client.make_bucket(bucket)
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    for number in range(60):
        (source / f"small-{number:02}").write_bytes(os.urandom(200_000))
    (source / "z-large").write_bytes(os.urandom(48 * MIB))
    url = f"obs://{bucket}/tree/"
    if way == "down":
        upload_folder(client, source, bucket, "tree/")
        target.mkdir()
    places = (source, url) if way == "up" else (url, target)
    command = [sys.executable, "-m", "trainshed.cli.main", "obs", "sync", *map(str, places)]
    process = subprocess.Popen(
        command,
        env={**os.environ, **server.environment()},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def count() -> int:
        if way == "up":
            return sum(1 for _ in client.walk(bucket, "tree/"))
        return sum(not object_download.is_unfinished(name) for name in os.listdir(target))

    deadline = time.monotonic() + 60
    while count() < 10 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait(90)
    done = count()
    assert done >= 10
    report = (
        upload_folder(client, source, bucket, "tree/", only_changed=True)
        if way == "up"
        else download_folder(client, bucket, "tree/", target, only_changed=True)
    )
    # What was done is not done again, and nothing half-made is left.
    assert report.unchanged >= done and report.files == 61 - report.unchanged
    if way == "up":
        assert {entry.key: entry.size for entry in client.walk(bucket)} == {
            f"tree/{path.name}": path.stat().st_size for path in source.iterdir()
        }
    else:
        assert {path.name: path.read_bytes() for path in target.iterdir()} == {
            path.name: path.read_bytes() for path in source.iterdir()
        }
