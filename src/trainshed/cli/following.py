"""Following a job on the terminal: platform messages, the ranks' logs, and how it ended."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trainshed.cli.presentation import format_duration, print_json, style_phase
from trainshed.model.errors import TrainshedError, Unavailable

if TYPE_CHECKING:
    from trainshed.client import Client
    from trainshed.client.results import Job

__all__ = ["LineWriter", "follow_job", "make_writer", "print_ending"]

T = TypeVar("T")
_PATIENCE_SECONDS = 600.0
_LONGEST_HELD_LINE = 64 * 1024
INTERRUPTED = 130


@dataclass(frozen=True)
class _News:
    """What a background reader has to say: a piece of a log, a changed job, a fault or its end."""

    stream: str = ""
    data: bytes = b""
    job: Job | None = None
    fault: TrainshedError | None = None
    ended: bool = False


class LineWriter:
    """Writes a log to a stream, each line behind a prefix; without a prefix byte for byte."""

    def __init__(self, prefix: str, write: Callable[[bytes], Any]) -> None:
        self._prefix = prefix.encode()
        self._write = write
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Write what came; with a prefix whole lines only, so that the lines of ranks do not mix."""
        if not self._prefix:
            self._write(data)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_HELD_LINE:
            lines.append(self._rest)
            self._rest = b""
        if lines:
            self._write(b"".join(self._prefix + line + b"\n" for line in lines))

    def close(self) -> None:
        """Write what is left of a line without an end."""
        if self._rest:
            self._write(self._prefix + self._rest + b"\n")
            self._rest = b""


def write_stdout(data: bytes) -> None:
    """Write bytes as they are to the standard output."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_stderr(data: bytes) -> None:
    """Write bytes as they are to the error stream."""
    sys.stderr.flush()
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()


def make_writer(stream: str, *, prefixed: bool) -> LineWriter:
    """Logs of ranks go to the standard output, what the platform says to the error stream."""
    if stream.endswith("platform"):
        return LineWriter(f"[{stream}] ", write_stderr)
    if not stream.startswith("rank-"):
        return LineWriter(f"[{stream}] " if prefixed else "", write_stdout)
    return LineWriter(f"[rank {stream.removeprefix('rank-')}] " if prefixed else "", write_stdout)


def follow_job(
    client: Client, job: Job, *, wanted: Callable[[str], bool] = lambda stream: True, as_json: bool = False
) -> int:
    """Follow a job from now to its end; 0 if it completed, 1 if not, 130 after Ctrl-C."""
    click.echo(f"Job {job.name} ({job.id[:8]})", err=True)
    try:
        ended = _JobFollower(client, job, wanted).run()
    except KeyboardInterrupt:
        return _interrupted(job)
    print_ending(ended)
    if as_json:
        print_json(ended)
    return 0 if ended.succeeded else 1


class _JobFollower:
    """Starts a reader for each log of each attempt as it appears, and writes what they bring."""

    def __init__(self, client: Client, job: Job, wanted: Callable[[str], bool]) -> None:
        self._client = client
        self._job = job
        self._wanted = wanted
        self._ended = False
        self._news: queue.SimpleQueue[_News] = queue.SimpleQueue()
        # Writers of the logs that are being read, by attempt and stream.
        self._writers: dict[str, LineWriter] = {}
        self._seen: set[str] = set()
        self._shown = ("", "", 0)

    def run(self) -> Job:
        """Follow until the job has ended and all of its logs were read to their ends."""
        _start(self._watch)
        while not self._ended or self._writers:
            item = self._news.get()
            if item.fault is not None:
                raise item.fault
            if item.job is not None:
                self._take(item.job)
                continue
            writer = self._writers[item.stream]
            writer.feed(item.data)
            if item.ended:
                writer.close()
                del self._writers[item.stream]
        return self._job

    def _take(self, job: Job) -> None:
        self._job = job
        self._ended = job.is_ended
        state = (job.phase, job.detail, job.attempt)
        if state != self._shown:
            self._shown = state
            detail = f": {job.detail}" if job.detail else ""
            attempt = f" (attempt {job.attempt})" if job.attempt > 1 else ""
            reason = f" ({job.wait['reason']})" if job.wait and job.wait.get("reason") else ""
            click.echo(f"[{job.phase}{detail}]{attempt}{reason}", err=True)
        if job.attempt:
            self._open_logs(job)

    def _open_logs(self, job: Job) -> None:
        names = [
            info.stream for info in self._client.log_streams(job.id, job.attempt) if self._wanted(info.stream)
        ]
        prefixed = sum(not name.endswith("platform") for name in names) > 1
        for name in names:
            key = f"{job.attempt}/{name}"
            if key in self._seen:
                continue
            self._seen.add(key)
            self._writers[key] = make_writer(name, prefixed=prefixed)
            _start(partial(_read_log, self._client, job.id, name, job.attempt, self._news, key))

    def _watch(self) -> None:
        try:
            for job in self._client.watch(self._job.id):
                self._news.put(_News(job=job))
        except TrainshedError as fault:
            self._news.put(_News(fault=fault))


def _patiently(ask: Callable[[], T]) -> T:
    """Ask until the platform answers: a restart of it must not end what a user follows."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return ask()
        except Unavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(1.0)


def _start(work: Callable[[], None]) -> None:
    threading.Thread(target=work, daemon=True).start()


def _read_log(
    client: Client,
    job_id: str,
    stream: str,
    attempt: int,
    news: queue.SimpleQueue[_News],
    key: str,
) -> None:
    try:
        for piece in client.logs(job_id, stream, follow=True, attempt=attempt):
            news.put(_News(key, piece))
    except TrainshedError as fault:
        news.put(_News(key, fault=fault))
    else:
        news.put(_News(key, ended=True))


def _interrupted(job: Job) -> int:
    click.echo(err=True)
    click.echo(f"The job goes on. To follow it again:  trainshed logs {job.name} -f", err=True)
    click.echo(f"To stop it:                           trainshed stop {job.name}", err=True)
    return INTERRUPTED


def print_ending(job: Job) -> None:
    """Say how a job ended, how long it took, where its outputs are, and the next step after a failure."""
    took = f" in {format_duration(job.seconds)}" if job.seconds is not None else ""
    click.echo(f"{job.name}: {style_phase(job.phase)}{took}", err=True)
    ending = job.ending or {}
    if not job.succeeded and ending.get("message"):
        click.echo(str(ending["message"]), err=True)
        if ending.get("hint"):
            click.echo(f"Next:  {ending['hint']}", err=True)
    if job.succeeded:
        for name, url in (job.spec.get("outputs") or {}).items():
            click.echo(f"Output {name}: {url}", err=True)
