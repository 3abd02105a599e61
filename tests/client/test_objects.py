"""The Python client of the object store, against a real process, over good and bad connections."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import stat
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import store_server
from trainshed.client.object_folders import Meter, copy_folder, download_folder, upload_folder
from trainshed.client.objects import ObjectClient
from trainshed.model.errors import Conflict, InvalidInput, NotAuthenticated, NotFound, Unavailable
from trainshed.store.embedded.check import CheckReport
from trainshed.store.embedded.store import EmbeddedStore

server = store_server.server


@pytest.fixture
def client(server: Any) -> Iterator[ObjectClient]:
    with ObjectClient(server.url, server.token) as client:
        yield client


@pytest.fixture
def bucket(client: ObjectClient) -> str:
    name = f"b-{uuid.uuid4().hex[:12]}"
    client.make_bucket(name)
    return name


class BadWire:
    """A proxy that cuts connections after so many bytes of the answer or of the request."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._target = (place.hostname, place.port)
        self.cuts: list[tuple[str, int]] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                inner, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            side, after = self.cuts.pop(0) if self.cuts else ("", 0)
            outer = socket.create_connection(self._target)
            for name, source, sink in (("request", inner, outer), ("answer", outer, inner)):
                left = after if side == name else None
                threading.Thread(target=self._pump, args=(source, sink, left), daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket, left: int | None) -> None:
        try:
            while data := source.recv(65536):
                if left is not None and len(data) >= left:
                    sink.sendall(data[:left])
                    break
                sink.sendall(data)
                left = None if left is None else left - len(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def wire(server: Any) -> Iterator[BadWire]:
    wire = BadWire(server.url)
    yield wire
    wire.close()


def tree_of(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def test_buckets_and_objects(client: ObjectClient, bucket: str) -> None:
    assert bucket in [entry.name for entry in client.buckets()]
    assert client.has_bucket(bucket) and not client.has_bucket("not-there")
    entry = client.put(bucket, "../值 +&?#%", b"bytes", content_type="x/y", metadata={"name": "值"})
    assert client.info(bucket, "../值 +&?#%") == entry
    assert client.read(bucket, "../值 +&?#%") == b"bytes"
    assert entry.metadata == {"name": "值"} and entry.etag == hashlib.md5(b"bytes").hexdigest()
    client.put_folder(bucket, "folder")
    assert client.list(bucket, delimiter="/").folders == ("../", "folder/")
    assert client.copy(bucket, "../值 +&?#%", bucket, "copy").size == 5
    assert [entry.key for entry in client.walk(bucket)] == ["../值 +&?#%", "copy", "folder/"]
    assert client.delete(bucket, "copy") and not client.delete(bucket, "copy")
    assert client.put_stream(bucket, "stream", io.BytesIO(b"x" * 3_000_000)).size == 3_000_000
    assert client.copy_prefix(bucket, "folder/", bucket, "other/") == 1
    assert client.delete_prefix(bucket, "") == 4
    with pytest.raises(NotFound, match="no object"):
        client.info(bucket, "stream")
    with pytest.raises(NotFound):
        client.read(bucket, "stream")
    with pytest.raises(Conflict):
        client.make_bucket(bucket)
    with pytest.raises(InvalidInput):
        client.make_bucket("NO")


def test_a_wrong_token_and_a_wrong_address_are_told(server: Any) -> None:
    with ObjectClient(server.url, "tsh_wrong") as client, pytest.raises(NotAuthenticated):
        client.buckets()
    with (
        ObjectClient("http://127.0.0.1:9", "x") as client,
        pytest.raises(Unavailable, match="does not answer"),
    ):
        client.buckets()


def test_files_keep_their_bit_and_time(client: ObjectClient, bucket: str, tmp_path: Path) -> None:
    source = tmp_path / "tool"
    source.write_bytes(os.urandom(2_500_000))
    source.chmod(0o755)
    os.utime(source, (1_700_000_000.25, 1_700_000_000.25))
    moved: list[int] = []
    client.put_file(source, bucket, "tool", on_bytes=moved.append)
    assert sum(moved) == 2_500_000
    client.get_file(bucket, "tool", tmp_path / "deep/down/tool")
    back = tmp_path / "deep/down/tool"
    assert back.read_bytes() == source.read_bytes()
    assert stat.S_IMODE(back.stat().st_mode) == 0o755 and back.stat().st_mtime == 1_700_000_000.25
    assert os.listdir(back.parent) == ["tool"]
    with pytest.raises(NotFound):
        client.get_file(bucket, "nothing", tmp_path / "other/nothing")
    assert os.listdir(tmp_path / "other") == []


def test_a_broken_download_goes_on_where_it_stopped(
    server: Any, client: ObjectClient, bucket: str, wire: BadWire, tmp_path: Path
) -> None:
    data = os.urandom(8_000_000)
    client.put(bucket, "large", data)
    wire.cuts = [("answer", 3_000_000), ("answer", 0), ("answer", 2_500_000)]
    moved: list[int] = []
    with ObjectClient(wire.url, server.token) as shaky:
        shaky.get_file(bucket, "large", tmp_path / "large", on_bytes=moved.append)
    assert (tmp_path / "large").read_bytes() == data
    assert sum(moved) == len(data) and wire.connections == 4


def test_an_object_overwritten_during_the_download_is_never_mixed(
    server: Any, client: ObjectClient, bucket: str, wire: BadWire, tmp_path: Path
) -> None:
    client.put(bucket, "k", b"a" * 6_000_000)
    wire.cuts = [("answer", 3_000_000)]
    overwritten = False

    def overwrite(_: int) -> None:
        nonlocal overwritten
        if not overwritten:
            overwritten = True
            client.put(bucket, "k", b"b" * 6_000_000)

    with ObjectClient(wire.url, server.token) as shaky:
        shaky.get_file(bucket, "k", tmp_path / "k", on_bytes=overwrite)
    assert (tmp_path / "k").read_bytes() in (b"a" * 6_000_000, b"b" * 6_000_000)


def test_a_broken_upload_is_sent_again(
    server: Any, client: ObjectClient, bucket: str, wire: BadWire, tmp_path: Path
) -> None:
    data = os.urandom(5_000_000)
    (tmp_path / "f").write_bytes(data)
    wire.cuts = [("request", 2_000_000), ("answer", 0)]
    moved: list[int] = []
    with ObjectClient(wire.url, server.token) as shaky:
        shaky.put_file(tmp_path / "f", bucket, "f", on_bytes=moved.append)
    assert client.read(bucket, "f") == data
    assert sum(moved) == len(data)


def test_a_stream_cannot_be_sent_again(server: Any, client: ObjectClient, bucket: str, wire: BadWire) -> None:
    wire.cuts = [("request", 100_000)]
    with ObjectClient(wire.url, server.token) as shaky, pytest.raises(Unavailable):
        shaky.put_stream(bucket, "s", io.BytesIO(b"x" * 5_000_000))
    with pytest.raises(NotFound):
        client.info(bucket, "s")


@pytest.mark.slow
def test_a_store_that_is_killed_and_restarted_harms_no_transfer(tmp_path: Path) -> None:
    """Every file that was reported as uploaded is there, whole; the client waits for the restart."""
    source = tmp_path / "source"
    source.mkdir()
    for number in range(120):
        (source / f"{number}").write_bytes(os.urandom(200_000))
    server = store_server.make_server(tmp_path / "home")
    try:
        finished = 0

        class Killer(Meter):
            def finish(self, path: str, size: int, *, is_unchanged: bool = False) -> None:
                nonlocal finished
                finished += 1
                if finished in (20, 70):
                    server.restart()

        with ObjectClient(server.url, server.token) as client:
            client.make_bucket("killed")
            report = upload_folder(client, source, "killed", "in/", meter=Killer())
            assert report.files == 120 and report.skipped == []
            finished = 0
            download_folder(client, "killed", "in/", tmp_path / "back", meter=Killer())
        assert tree_of(tmp_path / "back") == tree_of(source)
        store = EmbeddedStore(server.home.store)
        assert store.verify() == CheckReport(objects=120, bytes=120 * 200_000)
        store.close()
    finally:
        server.stop()


class Recorder(Meter):
    wants_total = True

    def __init__(self) -> None:
        self.total: tuple[int, int] = (0, 0)
        self.moved = 0
        self.finished: list[str] = []
        self._lock = threading.Lock()

    def plan(self, files: int, size: int) -> None:
        self.total = (files, size)

    def move(self, size: int) -> None:
        with self._lock:
            self.moved += size

    def finish(self, path: str, size: int, *, is_unchanged: bool = False) -> None:
        with self._lock:
            self.finished.append(path)


def test_folders_go_up_and_down(client: ObjectClient, bucket: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "a/b").mkdir(parents=True)
    (source / "empty").mkdir()
    for number in range(40):
        (source / "a/b" / f"{number}.bin").write_bytes(os.urandom(1000 + number))
    (source / "link").symlink_to("/etc/passwd")
    meter = Recorder()
    report = upload_folder(client, source, bucket, "in/", meter=meter)
    assert (report.files, report.folders) == (40, 1) and report.skipped == [("link", "it is a symbolic link")]
    assert meter.total == (40, report.bytes) and meter.moved == report.bytes and len(meter.finished) == 40
    down = download_folder(client, bucket, "in/", tmp_path / "target")
    assert (down.files, down.bytes) == (40, report.bytes)
    expected = tree_of(source)
    del expected["link"]
    assert tree_of(tmp_path / "target") == expected
    with pytest.raises(NotFound):
        download_folder(client, bucket, "nothing/", tmp_path / "x")
    with pytest.raises(InvalidInput):
        upload_folder(client, tmp_path / "nothing", bucket, "")


def test_sync_moves_only_what_changed(client: ObjectClient, bucket: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    for name in ("same", "touched", "changed", "sub/gone"):
        (source / name).write_bytes(name.encode())
    upload_folder(client, source, bucket, "s/", only_changed=True)
    os.utime(source / "touched", (1, 1))
    before = (source / "changed").stat()
    (source / "changed").write_bytes(b"CHANGED")
    os.utime(source / "changed", (before.st_mtime + 5, before.st_mtime + 5))
    (source / "sub/gone").unlink()
    (source / "new").write_bytes(b"new")
    report = upload_folder(client, source, bucket, "s/", only_changed=True)
    assert (report.files, report.unchanged, report.deleted) == (2, 2, 0)
    report = upload_folder(client, source, bucket, "s/", only_changed=True, delete=True)
    assert (report.files, report.unchanged, report.deleted) == (0, 4, 1)
    target = tmp_path / "target"
    assert download_folder(client, bucket, "s/", target, only_changed=True).files == 4
    (target / "extra").write_text("x")
    (target / "same").write_bytes(b"SAME")
    os.utime(target / "same", (1, 1))
    report = download_folder(client, bucket, "s/", target, only_changed=True, delete=True)
    assert (report.files, report.unchanged, report.deleted) == (1, 3, 1)
    assert tree_of(target) == tree_of(source)
    report = copy_folder(client, bucket, "s/", bucket, "t/")
    assert report.files == 5
    client.put(bucket, "t/extra", b"")
    client.put(bucket, "s/new", b"newer")
    report = copy_folder(client, bucket, "s/", bucket, "t/", delete=True)
    assert (report.files, report.unchanged, report.deleted) == (1, 4, 1)
    assert client.read(bucket, "t/new") == b"newer"


def test_hostile_keys_stay_out(client: ObjectClient, bucket: str, tmp_path: Path) -> None:
    bad = ["../x", "/abs", "a/../../x", ".", "a//b", "n" * 256, "d/f/g"]
    for key in [*bad, "d/f", "ok"]:
        client.put(bucket, key, b"x")
    report = download_folder(client, bucket, "", tmp_path / "deep/target")
    assert {path for path, _ in report.skipped} == set(bad)
    assert tree_of(tmp_path / "deep") == {
        "target": None,
        "target/d": None,
        "target/d/f": b"x",
        "target/ok": b"x",
    }
