"""Code snapshots: only whole ones, only what was announced, only within the workspace."""

from __future__ import annotations

import dataclasses
import io
import tarfile
import time
from collections.abc import Callable, Iterator

import pytest

from trainshed.model.errors import InvalidInput, NotAllowed, TooLarge, TrainshedError
from trainshed.services import code
from trainshed.services.code import CODE_BUCKET
from trainshed.services.identity import Caller
from trainshed.services.jobs import JobView
from trainshed.services.platform import Platform

Tar = Callable[..., tuple[io.BytesIO, str]]


def keys(platform: Platform) -> list[str]:
    platform.store.ensure_bucket(CODE_BUCKET)
    return [info.key for info in platform.store.walk(CODE_BUCKET)]


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_snapshot_is_stored_file_by_file(platform: Platform, ann: Caller, tar: Tar, mode: str) -> None:
    files = {
        "train.py": b"print(1)\n",
        "run.sh!": b"#!/bin/sh\n",
        "a/b/größe 日本.txt": b"x" * 3000,
        "empty": b"",
        "a/" + "long" * 60: b"y",
    }
    stream, digest = tar(files, mode)
    assert not code.has_snapshot(platform, ann, digest)
    snapshot = code.upload_snapshot(platform, ann, stream, digest)
    assert code.has_snapshot(platform, ann, digest)
    assert (snapshot.files, snapshot.size) == (5, sum(map(len, files.values())))
    assert snapshot.prefix.startswith(f"{digest}/")
    for name, data in files.items():
        key = snapshot.prefix + name.removesuffix("!")
        with platform.store.open(CODE_BUCKET, key) as file:
            assert file.read() == data
        assert platform.store.info(CODE_BUCKET, key).metadata == (
            {"mode": "755"} if name.endswith("!") else {}
        )
    # The second upload is not even read.
    assert code.upload_snapshot(platform, ann, io.BytesIO(b"junk"), digest) == snapshot


def test_a_stream_of_pieces_is_as_good_as_a_file(platform: Platform, ann: Caller, tar: Tar) -> None:
    stream, digest = tar({"train.py": b"1" * 10_000})

    def pieces() -> Iterator[bytes]:
        while piece := stream.read(777):
            yield piece
            yield b""

    assert code.upload_snapshot(platform, ann, pieces(), digest).size == 10_000


def test_content_that_was_not_announced_leaves_nothing(platform: Platform, ann: Caller, tar: Tar) -> None:
    stream, _ = tar({"train.py": b"evil"})
    _, digest = tar({"train.py": b"good"})
    with pytest.raises(InvalidInput) as refusal:
        code.upload_snapshot(platform, ann, stream, digest)
    assert refusal.value.code == "digest_mismatch"
    assert not code.has_snapshot(platform, ann, digest)
    assert keys(platform) == []


def test_an_upload_that_breaks_off_leaves_nothing(platform: Platform, ann: Caller, tar: Tar) -> None:
    stream, digest = tar({"train.py": b"1" * 10_000, "more.py": b"2" * 10_000})
    data = stream.getvalue()
    for end in (0, 100, 512, 5000, 10_752, 20_000):
        with pytest.raises(TrainshedError):
            code.upload_snapshot(platform, ann, io.BytesIO(data[:end]), digest)

    def broken() -> Iterator[bytes]:
        yield data[:11_000]
        raise ConnectionResetError

    with pytest.raises(TrainshedError):
        code.upload_snapshot(platform, ann, broken(), digest)
    assert keys(platform) == []
    code.upload_snapshot(platform, ann, io.BytesIO(data), digest)


def hostile(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", data: bytes = b"x") -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, target
        entry.size = len(data) if kind == tarfile.REGTYPE else 0
        tar.addfile(entry, io.BytesIO(data))
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize(
    "stream",
    [
        hostile("../outside.py"),
        hostile("a/../../outside.py"),
        hostile("/etc/passwd"),
        hostile("a//b"),
        hostile("a\\b"),
        hostile("link", tarfile.SYMTYPE, "/etc/passwd"),
        hostile("link", tarfile.LNKTYPE, "train.py"),
        hostile("device", tarfile.CHRTYPE),
        hostile("fifo", tarfile.FIFOTYPE),
        hostile("../folder", tarfile.DIRTYPE),
        hostile("x" * 1100),
        hostile("bad\udcff.py"),
        io.BytesIO(b"not a tar at all" * 100),
        io.BytesIO(b"\x1f\x8b" + b"not gzip" * 100),
        io.BytesIO(b""),
    ],
)
def test_hostile_uploads_are_refused(platform: Platform, ann: Caller, stream: io.BytesIO) -> None:
    stream.seek(0)
    with pytest.raises(InvalidInput):
        code.upload_snapshot(platform, ann, stream, "0" * 64)
    assert keys(platform) == []


def test_a_file_may_not_come_twice_or_be_a_folder_as_well(platform: Platform, ann: Caller) -> None:
    for names in (("a", "a"), ("a", "a/b"), ("a/b", "a")):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name in names:
                tar.addfile(tarfile.TarInfo(name), io.BytesIO())
        buffer.seek(0)
        with pytest.raises(InvalidInput):
            code.upload_snapshot(platform, ann, buffer, "0" * 64)


def test_an_extended_header_of_any_size_costs_no_memory(platform: Platform, ann: Caller) -> None:
    header = tarfile.TarInfo("PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, 1 << 34

    def endless() -> Iterator[bytes]:
        yield header.tobuf(tarfile.GNU_FORMAT)
        while True:
            yield bytes(1 << 20)

    with pytest.raises(InvalidInput, match="too large"):
        code.upload_snapshot(platform, ann, endless(), "0" * 64)


def test_code_that_is_too_large_is_refused_before_it_is_stored(platform: Platform, ann: Caller) -> None:
    small = dataclasses.replace(platform, settings=dataclasses.replace(platform.settings, code_limit_mb=1))
    header = tarfile.TarInfo("data.bin")
    header.size = 2 << 20
    with pytest.raises(TooLarge) as refusal:
        code.upload_snapshot(small, ann, io.BytesIO(header.tobuf()), "0" * 64)
    assert "input" in refusal.value.hint
    assert keys(platform) == []


def test_a_digest_is_a_digest(platform: Platform, ann: Caller) -> None:
    for digest in ("", "abc", "../" * 22, "A" * 64, "0" * 63 + "/"):
        with pytest.raises(InvalidInput):
            code.upload_snapshot(platform, ann, io.BytesIO(), digest)
        assert not code.has_snapshot(platform, ann, digest)


def test_code_of_others_is_not_there(
    platform: Platform, ann: Caller, bob: Caller, make_caller, tar: Tar
) -> None:  # type: ignore[no-untyped-def]
    stream, digest = tar({"train.py": b"1"})
    code.upload_snapshot(platform, ann, stream, digest)
    assert not code.has_snapshot(platform, bob, digest)
    with pytest.raises(NotAllowed):
        code.has_snapshot(platform, make_caller("eve", "viewer", "red"), digest)


def test_abandoned_code_goes_away_and_used_code_stays(
    platform: Platform, ann: Caller, tar: Tar, submit: Callable[..., JobView], clock
) -> None:  # type: ignore[no-untyped-def]
    used = submit(ann).spec["code"].removeprefix("snapshot:")
    stream, unused = tar({"old.py": b"1"})
    code.upload_snapshot(platform, ann, stream, unused)
    platform.store.put(CODE_BUCKET, f"{'f' * 64}/abc/half.py", b"a crash left this")
    # The store stamps objects with the real time.
    clock.now = time.time()
    assert code.remove_abandoned_code(platform) == 0
    clock.now += 10**9
    assert code.remove_abandoned_code(platform) == 2
    assert code.has_snapshot(platform, ann, used)
    assert not code.has_snapshot(platform, ann, unused)
    assert len(keys(platform)) == 2
