"""Logs on their way from the spool to the store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainshed.runner.log_archive import ARCHIVE_BUCKET, LogArchive
from trainshed.store.object_store import ObjectStore

PREFIX = "job/attempt-1/node-0/"


def archive(store: ObjectStore, segment: int = 4096, secrets: list[str] | None = None) -> LogArchive:
    return LogArchive(store, PREFIX, segment, secrets or [])


def read_all(store: ObjectStore, stream: str = "rank-0") -> bytes:
    data = b""
    for info in store.walk(ARCHIVE_BUCKET, f"{PREFIX}{stream}/"):
        assert int(info.key.rsplit("/", 1)[1]) == len(data), "pieces must follow each other without a gap"
        with store.open(ARCHIVE_BUCKET, info.key) as piece:
            data += piece.read()
    return data


def test_full_pieces_move_while_running_and_the_rest_at_the_end(store: ObjectStore, tmp_path: Path) -> None:
    spool = tmp_path / "rank-0.log"
    content = os.urandom(10_000)
    spool.write_bytes(content)
    subject = archive(store)
    subject.ship("rank-0", spool)
    assert read_all(store) == content[:8192]
    subject.ship("rank-0", spool, final=True)
    assert read_all(store) == content
    subject.ship("rank-0", spool, final=True)
    assert read_all(store) == content


def test_the_spool_gives_its_room_back_and_keeps_its_offsets(store: ObjectStore, tmp_path: Path) -> None:
    spool = tmp_path / "rank-0.log"
    segment = 1 << 20
    spool.write_bytes(b"x" * (4 * segment + 10))
    with spool.open("rb") as file:
        os.fsync(file.fileno())
    before = spool.stat()
    archive(store, segment).ship("rank-0", spool)
    after = spool.stat()
    assert after.st_size == before.st_size
    assert after.st_blocks * 512 <= segment
    assert spool.read_bytes()[-10:] == b"x" * 10


def test_another_runner_goes_on_where_a_dead_one_stopped(store: ObjectStore, tmp_path: Path) -> None:
    spool = tmp_path / "rank-0.log"
    content = os.urandom(9_000)
    spool.write_bytes(content[:5_000])
    archive(store).ship("rank-0", spool)
    with spool.open("ab") as file:
        file.write(content[5_000:])
    archive(store).ship("rank-0", spool, final=True)
    assert read_all(store) == content


def test_nobody_looks_for_pieces_that_cannot_be_there(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, empty = tmp_path / "rank-0.log", tmp_path / "rank-1.log"
    content = os.urandom(9_000)
    spool.write_bytes(content)
    empty.touch()
    subject = LogArchive(store, PREFIX, 4096, [], is_new=True)
    with monkeypatch.context() as patch:
        patch.delattr(type(store), "walk")
        assert subject.size("rank-0") == 0
        for final in (False, True, True):
            subject.ship("rank-0", spool, final=final)
            subject.ship("rank-1", empty, final=final)
        assert (subject.size("rank-0"), subject.size("rank-1")) == (9_000, 0)
    assert read_all(store) == content and read_all(store, "rank-1") == b""


def test_the_export_is_the_whole_log(store: ObjectStore, tmp_path: Path) -> None:
    spool = tmp_path / "rank-0.log"
    content = os.urandom(20_000)
    spool.write_bytes(content)
    store.create_bucket("logs", "w")
    subject = archive(store)
    subject.ship("rank-0", spool, final=True)
    subject.export("rank-0", "logs", "a/b.log")
    with store.open("logs", "a/b.log") as file:
        assert file.read() == content


def test_a_log_that_was_cut_by_its_own_job_keeps_true_offsets(store: ObjectStore, tmp_path: Path) -> None:
    spool = tmp_path / "rank-0.log"
    spool.write_bytes(b"a" * 5000)
    subject = archive(store)
    subject.ship("rank-0", spool)
    os.truncate(spool, 10)
    subject.ship("rank-0", spool, final=True)
    assert read_all(store) == b"a" * 4096


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 4200), st.integers(1, 3))
def test_a_secret_across_two_pieces_is_masked(
    store: ObjectStore, tmp_path: Path, at: int, tries: int
) -> None:
    secret = "t0p-s3cret-value"
    content = b"." * at + secret.encode() + b"\n" * (9000 - at)
    spool = tmp_path / "rank-0.log"
    spool.write_bytes(content[:4099])
    store.delete_prefix(ARCHIVE_BUCKET, PREFIX)
    for _ in range(tries):
        archive(store, secrets=[secret]).ship("rank-0", spool)
    with spool.open("ab") as file:
        file.write(content[4099:])
    archive(store, secrets=[secret]).ship("rank-0", spool, final=True)
    stored = read_all(store)
    assert len(stored) == len(content)
    assert secret.encode() not in stored
    assert stored.count(b"*") == len(secret)


def test_a_log_is_exported_as_far_as_it_has_come(store: ObjectStore, tmp_path: Path) -> None:
    spool = tmp_path / "rank-0.log"
    store.create_bucket("mine", "w")
    subject = archive(store, secrets=["hunter2-hunter2"])

    def exported() -> bytes:
        subject.export_live("rank-0", spool, "mine", "logs/a.log")
        with store.open("mine", "logs/a.log") as file:
            return file.read()

    assert exported() == b""
    content = b"begin hunter2-hunter2 " + b"x" * 10_000 + b" and hunter2-hunt"
    masked = content.replace(b"hunter2-hunter2", b"*" * 15)
    spool.write_bytes(content)
    assert exported() == masked
    subject.ship("rank-0", spool)
    assert exported() == masked, "the first pieces are holes of the spool by now"
    spool.write_bytes(spool.read_bytes() + b"er2 end")
    assert exported().endswith(b" and *************** end"[-23:])
    subject.ship("rank-0", spool, final=True)
    whole = exported()
    subject.export("rank-0", "mine", "logs/b.log")
    with store.open("mine", "logs/b.log") as file:
        assert file.read() == whole


def test_a_piece_that_is_archived_during_an_export_is_not_read_as_a_hole(
    store: ObjectStore, tmp_path: Path
) -> None:
    spool = tmp_path / "rank-0.log"
    content = os.urandom(3 << 20)
    spool.write_bytes(content)
    subject = archive(store, segment=1 << 20)
    live = subject._read_live("rank-0", spool)
    told = next(live)
    subject.ship("rank-0", spool)
    assert told + b"".join(live) == content
