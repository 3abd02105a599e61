"""Logs: no byte is missing, none is twice, no secret is shown, and the end says why."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from trainshed.db.attempts import AttemptRow, attempt_of, change_attempt, insert_attempt
from trainshed.db.engine import begin
from trainshed.model.errors import InvalidInput, NotFound
from trainshed.model.phase import Phase
from trainshed.runner.log_archive import LogArchive, archive_prefix
from trainshed.services import logs
from trainshed.services.identity import Caller
from trainshed.services.job_credentials import create_job_credentials
from trainshed.services.jobs import JobView
from trainshed.services.log_mask import LogMask
from trainshed.services.platform import Platform


@dataclass
class Run:
    """A job whose runner is played by the test."""

    platform: Platform
    job: JobView
    attempt: int = 1

    def write(self, data: bytes, rank: int = 0, node: int = 0) -> None:
        path = self.platform.home.run_folder(self.job.id, self.attempt, node).rank_log(rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)

    def archive(self, segment: int, *, final: bool = False, rank: int = 0, node: int = 0) -> None:
        path = self.platform.home.run_folder(self.job.id, self.attempt, node).rank_log(rank)
        self.platform.store.ensure_bucket(".jobs")
        prefix = archive_prefix(self.job.id, self.attempt, node)
        LogArchive(self.platform.store, prefix, segment, []).ship(f"rank-{rank}", path, final=final)

    def end_attempt(self, **changes: Any) -> None:
        with begin(self.platform.engine) as connection:
            row = attempt_of(connection, self.job.id, self.attempt)
            assert row is not None
            change_attempt(connection, row, state="ended", ended_at=5.0, **changes)


@pytest.fixture
def start(
    platform: Platform, submit: Callable[..., JobView], advance: Callable[..., None]
) -> Callable[..., Run]:
    """Starts a job: its first attempt is under way."""

    def start(caller: Caller, devices: tuple[int, ...] = (0,), nodes: int = 1, **fields: Any) -> Run:
        job = submit(caller, **fields)
        advance(job.id, Phase.PENDING, Phase.RUNNING, attempt=1)
        placements = [{"node": "host", "devices": list(devices), "cpus": 1, "memory_mb": 0}] * nodes
        with begin(platform.engine) as connection:
            insert_attempt(connection, AttemptRow(job.id, 1, "local", placements, "running", 1.0))
        return Run(platform, job)

    return start


def read_all(
    platform: Platform, caller: Caller, ref: str, limit: int = 1 << 18, **more: Any
) -> tuple[bytes, logs.LogChunk]:
    data, offset = b"", 0
    while True:
        chunk = logs.read_log(platform, caller, ref, offset=offset, limit=limit, **more)
        assert chunk.offset == offset
        assert chunk.next_offset == offset + len(chunk.data)
        data += chunk.data
        offset = chunk.next_offset
        if chunk.ended or not chunk.data:
            return data, chunk


def test_a_log_is_read_from_archive_and_spool_as_one(
    platform: Platform, ann: Caller, start: Callable[..., Run]
) -> None:
    run = start(ann)
    rng = random.Random(7)
    written = b""
    for _ in range(12):
        piece = rng.randbytes(rng.randrange(1, 9000)) + b"\r\x00\xff\n"
        run.write(piece)
        written += piece
        run.archive(8192)
    for limit in (1 << 18, 5000, 4096):
        data, chunk = read_all(platform, ann, run.job.id, limit)
        assert data == written
        assert not chunk.ended
        assert chunk.reason == ""
        assert chunk.size == len(written)
    for _ in range(30):
        offset = rng.randrange(len(written) + 10)
        chunk = logs.read_log(platform, ann, run.job.id, offset=offset, limit=rng.randrange(1, 20_000))
        assert chunk.data == written[offset : offset + len(chunk.data)]
    run.archive(8192, final=True)
    assert read_all(platform, ann, run.job.id)[0] == written
    # All of it is in the archive; the run folder may go.
    platform.home.run_folder(run.job.id, 1, 0).rank_log(0).unlink()
    assert read_all(platform, ann, run.job.id)[0] == written


def test_reading_while_the_runner_writes_and_archives_loses_nothing(
    platform: Platform, ann: Caller, start: Callable[..., Run]
) -> None:
    run = start(ann)
    total = 3000
    done = threading.Event()

    def play_runner() -> None:
        for number in range(total):
            run.write(b"line %06d\n" % number)
            if number % 40 == 0:
                run.archive(4096)
        run.archive(4096, final=True)
        run.end_attempt()
        done.set()

    thread = threading.Thread(target=play_runner)
    thread.start()
    data, offset = b"", 0
    try:
        while True:
            chunk = logs.read_log(platform, ann, run.job.id, offset=offset, limit=10_000)
            data += chunk.data
            offset = chunk.next_offset
            if chunk.ended:
                break
    finally:
        thread.join(60)
    assert done.is_set()
    assert data == b"".join(b"line %06d\n" % number for number in range(total))


def test_the_end_of_a_log_says_why(
    platform: Platform, ann: Caller, start: Callable[..., Run], advance: Any
) -> None:
    run = start(ann)
    run.write(b"hello\n")
    assert not logs.read_log(platform, ann, run.job.id).ended
    run.end_attempt()
    first = logs.read_log(platform, ann, run.job.id, limit=3)
    assert (first.data, first.ended, first.reason) == (b"hel", False, "")
    assert read_all(platform, ann, run.job.id)[1].reason == "attempt 1 ended, the job is Running"
    advance(run.job.id, Phase.PENDING, Phase.RUNNING, attempt=2)
    with begin(platform.engine) as connection:
        insert_attempt(connection, AttemptRow(run.job.id, 2, "local", [{"devices": []}], "running", 1.0))
    chunk = logs.read_log(platform, ann, run.job.id, attempt=1)
    assert (chunk.data, chunk.ended, chunk.reason) == (b"hello\n", True, "attempt 1 ended, attempt 2 follows")
    latest = logs.read_log(platform, ann, run.job.id)
    assert (latest.data, latest.ended, latest.attempt) == (b"", False, 2)
    run.attempt = 2
    run.end_attempt()
    advance(run.job.id, Phase.FAILED, ending={"message": "Rank 0 ended with exit code 1"})
    assert logs.read_log(platform, ann, run.job.id).reason == "job Failed: Rank 0 ended with exit code 1"
    assert logs.read_log(platform, ann, run.job.id, offset=10**12).ended


def test_a_job_that_never_started_has_an_end_as_well(
    platform: Platform, ann: Caller, submit: Any, advance: Any
) -> None:
    job = submit(ann)
    chunk = logs.read_log(platform, ann, job.id)
    assert (chunk.data, chunk.ended, chunk.attempt) == (b"", False, 0)
    assert logs.log_streams(platform, ann, job.id) == []
    advance(job.id, Phase.TERMINATED, ending={"message": "Stopped by ann."})
    chunk = logs.read_log(platform, ann, job.id)
    assert (chunk.ended, chunk.reason) == (True, "job Terminated: Stopped by ann.")


def test_secrets_are_masked_wherever_a_piece_begins_or_ends(
    platform: Platform, ann: Caller, start: Callable[..., Run]
) -> None:
    run = start(ann, secrets={"KEY": "s3cr3t-s3cr3t-value", "PEM": "line one\nline two", "SHORT": "abc"})
    credentials = create_job_credentials(platform, run.job.id)
    text = (
        b"abc KEY=s3cr3t-s3cr3t-value and s3cr3t-s3cr3t-s3cr3t-value\n"
        b"token " + credentials.token.encode() + b" key " + credentials.secret_key.encode() + b"\n"
        b"line one\nline two\n{'PEM': 'line one\\nline two'}\nend\n"
    )
    run.write(text)
    whole, _ = read_all(platform, ann, run.job.id)
    assert len(whole) == len(text)
    for secret in (
        b"s3cr3t-v",
        b"s3cr3t-s",
        credentials.token.encode(),
        credentials.secret_key.encode(),
        b"line one",
        b"line two",
    ):
        assert secret not in whole
    assert whole.startswith(b"abc KEY=" + b"*" * 19 + b" and ")
    assert whole.endswith(b"\nend\n")
    for limit in (1, 7, 20):
        assert read_all(platform, ann, run.job.id, limit)[0] == whole
    for offset in range(0, len(text), 5):
        assert (
            logs.read_log(platform, ann, run.job.id, offset=offset, limit=11).data
            == whole[offset : offset + 11]
        )


def test_a_secret_that_is_written_in_two_steps_is_never_seen(
    platform: Platform, ann: Caller, start: Callable[..., Run]
) -> None:
    run = start(ann, secrets={"KEY": "s3cr3t-value"})
    run.write(b"the key is s3cr3")
    chunk = logs.read_log(platform, ann, run.job.id)
    assert (chunk.data, chunk.next_offset, chunk.size) == (b"the key is ", 11, 16)
    run.write(b"t-value!\n")
    assert logs.read_log(platform, ann, run.job.id, offset=11).data == b"************!\n"
    # At the real end the beginning of a secret is no secret: it is not held back for ever.
    run.write(b"s3cr")
    run.end_attempt()
    assert read_all(platform, ann, run.job.id)[0].endswith(b"!\ns3cr")


def test_the_mask_counts_overlapping_occurrences() -> None:
    mask = LogMask(["ababab", "short", "x" * 6])
    assert mask.apply(b"-abababab-xxxxxxx-short") == b"-********-*******-short"
    assert mask.open_end(b"--abab") == 4
    assert mask.open_end(b"--aba") == 0
    assert mask.open_end(b"--ababab") == 0
    assert LogMask([]).reach == 0


def test_processes_without_devices_have_logs_too(
    platform: Platform, ann: Caller, start: Callable[..., Run]
) -> None:
    run = start(ann, devices=(), nodes=2, processes=2)
    found = [view.stream for view in logs.log_streams(platform, ann, run.job.id)]
    assert found == ["rank-0", "rank-1", "rank-2", "rank-3", "platform", "node-1/platform"]


def test_streams_of_all_ranks_and_nodes(platform: Platform, ann: Caller, start: Callable[..., Run]) -> None:
    run = start(ann, devices=(0, 1), nodes=2, flavor="ascend.2")
    run.write(b"rank 3", rank=3, node=1)
    folder = platform.home.run_folder(run.job.id, 1, 1)
    folder.platform_log.write_bytes(b"staging")
    found = {view.stream: view.size for view in logs.log_streams(platform, ann, run.job.id)}
    assert found == {
        "rank-0": 0, "rank-1": 0, "rank-2": 0, "rank-3": 6, "platform": 0, "node-1/platform": 7
    }  # fmt: skip
    assert logs.read_log(platform, ann, run.job.id, stream="rank-3").data == b"rank 3"
    assert logs.read_log(platform, ann, run.job.id, stream="node-1/platform").data == b"staging"
    for wrong in (
        "rank-4",
        "node-2/platform",
        "rank--1",
        "../../etc/passwd",
        "rank-0/..",
        "",
        "node-0/rank-3",
        "RANK-0",
    ):
        with pytest.raises(NotFound):
            logs.read_log(platform, ann, run.job.id, stream=wrong)
    for attempt in (0, 2, -1, 10**12):
        with pytest.raises(NotFound):
            logs.read_log(platform, ann, run.job.id, attempt=attempt)
    with pytest.raises(InvalidInput):
        logs.read_log(platform, ann, run.job.id, offset=-1)


def test_a_log_that_was_replaced_by_a_link_is_not_followed(
    platform: Platform, ann: Caller, start: Callable[..., Run]
) -> None:
    run = start(ann)
    path = platform.home.run_folder(run.job.id, 1, 0).rank_log(0)
    path.parent.mkdir(parents=True)
    path.symlink_to(platform.home.master_key)
    assert logs.read_log(platform, ann, run.job.id).data == b""
    path.unlink()
    os.mkfifo(path)
    assert logs.read_log(platform, ann, run.job.id).data == b""


def test_a_huge_log_is_read_in_small_pieces(
    platform: Platform, ann: Caller, start: Callable[..., Run]
) -> None:
    run = start(ann)
    run.write(b"x")
    path = platform.home.run_folder(run.job.id, 1, 0).rank_log(0)
    os.truncate(path, 20 << 30)
    with path.open("ab") as file:
        file.write(b"the end\n")
    chunk = logs.read_log(platform, ann, run.job.id, offset=(20 << 30) - 5, limit=1 << 40)
    assert chunk.data == bytes(5) + b"the end\n"
    assert len(logs.read_log(platform, ann, run.job.id, limit=1 << 40).data) == 4 << 20
