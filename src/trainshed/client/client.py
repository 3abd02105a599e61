"""The client: everything that the command line can do with jobs, from Python."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

from trainshed.client.code_folder import LARGE_BYTES, CodeFolder, scan_code_folder
from trainshed.client.connection import find_connection
from trainshed.client.directory import Directory
from trainshed.client.job_file import is_local_code, read_job_file, resolve_job
from trainshed.client.log_stream import LogStream, read_end, resume_events
from trainshed.client.results import (
    Attempt,
    Event,
    Explanation,
    Job,
    LeftFile,
    LogStreamInfo,
    MetricSeries,
    OpenTool,
    read_result,
)
from trainshed.client.transport import Transport
from trainshed.model.errors import Unavailable

__all__ = ["Client"]

T = TypeVar("T")
# How long a follower waits for a platform that is away before it gives up.
_PATIENCE_SECONDS = 600.0
# How long the platform keeps an answer back for whoever waits for a job's end.
_LONG_ANSWER_SECONDS = 20.0
_LOOK_SECONDS = 0.3
_AWAY = ("no_connection", "connection_lost", "timeout")


class Client(Directory):
    """A connection to a platform.

    Without arguments it is the platform of TRAINSHED_URL and TRAINSHED_TOKEN, else the one that
    `trainshed up` or `trainshed login` left for this user. `ca` names a file with the CA of its certificate,
    where that is not one that the system trusts anyway (TRAINSHED_CA, or what was saved).
    """

    def __init__(
        self, url: str | None = None, token: str | None = None, *, ca: str | Path | None = None
    ) -> None:
        connection = find_connection(url, token, ca=ca)
        self.url = connection.url
        self.obs_url = connection.obs_url
        super().__init__(Transport(connection.url, connection.token, connection.ca))

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections to the platform."""
        self._transport.close()

    # --- submitting ---------------------------------------------------------------------------------------

    def submit(
        self,
        job: Mapping[str, Any] | str | Path,
        *,
        on_scan: Callable[[CodeFolder, bool], None] | None = None,
    ) -> Job:
        """Submit a job: a mapping of its fields, or the path of a job file.

        A local code folder is uploaded first, unless the platform has the same content already. `on_scan` is
        called with the folder and whether it will be uploaded.
        """
        return read_result(Job, self._transport.call("POST", "/api/v1/jobs", self._prepare(job, on_scan)))

    def run(self, **fields: Any) -> Job:
        """Submit a job from its fields: `client.run(code="src", boot="train.py", flavor="cpu.1")`."""
        return self.submit(fields)

    def dry_run(
        self,
        job: Mapping[str, Any] | str | Path,
        *,
        on_scan: Callable[[CodeFolder, bool], None] | None = None,
    ) -> dict[str, Any]:
        """What a submit would do: the job as it would be stored and the launch plan of every node."""
        body = self._prepare(job, on_scan)
        answer: dict[str, Any] = self._transport.call("POST", "/api/v1/jobs", body, query={"dry_run": "true"})
        return answer

    def upload_code(
        self, folder: str | Path, boot: str = "", on_scan: Callable[[CodeFolder, bool], None] | None = None
    ) -> str:
        """Upload a code folder and return the name of its snapshot, for the field `code` of a job."""
        code = scan_code_folder(folder, boot)
        path = f"/api/v1/code/{code.digest}"
        known = bool(self._transport.get(path)["exists"])
        if on_scan is not None:
            on_scan(code, not known)
        elif not known and code.size > LARGE_BYTES:
            warnings.warn(
                f"The code folder {code.root} holds {code.size / 1e6:,.0f} MB; data belongs into the object "
                "store, and .trainshedignore leaves files out.",
                stacklevel=3,
            )
        if not known:
            self._transport.call("PUT", path, content=code.tar())
        return f"snapshot:{code.digest}"

    def _prepare(
        self, job: Mapping[str, Any] | str | Path, on_scan: Callable[[CodeFolder, bool], None] | None
    ) -> dict[str, Any]:
        from trainshed.model.job_spec import DIALECTS_WITH_CODE_NAME, is_folder_name, parse_job_spec

        data = resolve_job(job, Path()) if isinstance(job, Mapping) else read_job_file(job)
        # Faults of the spec are told before anything is uploaded.
        spec = parse_job_spec(data)
        if is_local_code(spec.code):
            data = data | {"code": self.upload_code(spec.code, spec.boot, on_scan)}
            name = Path(spec.code).resolve().name
            if spec.dialect in DIALECTS_WITH_CODE_NAME and not spec.code_name and is_folder_name(name):
                data["code_name"] = name
        return data

    # --- looking ------------------------------------------------------------------------------------------

    def jobs(self, phase: str | None = None, limit: int = 50, before: str | None = None) -> list[Job]:
        """Jobs, newest first; `before` is the id of the last job of the page before."""
        answer = self._transport.get("/api/v1/jobs", phase=phase, limit=limit, before=before)
        return [read_result(Job, item) for item in answer["jobs"]]

    def get(self, job: str) -> Job:
        """One job, by its name, its id or the unique beginning of its id."""
        return read_result(Job, self._transport.get(_job_path(job)))

    def explain(self, job: str) -> Explanation:
        """Why a job waits or how it ended, and the next step."""
        return read_result(Explanation, self._transport.get(_job_path(job, "explain")))

    def events(self, job: str, after: int = 0) -> list[Event]:
        """A job's story from behind the event `after`."""
        answer = self._transport.get(_job_path(job, "events"), after=after)
        return [read_result(Event, item) for item in answer["events"]]

    def attempts(self, job: str) -> list[Attempt]:
        """Every start of a job, the first one first."""
        answer = self._transport.get(_job_path(job, "attempts"))
        return [read_result(Attempt, item) for item in answer["attempts"]]

    def metrics(
        self, job: str, names: list[str] | None = None, limit: int = 1000, attempt: int | None = None
    ) -> list[MetricSeries]:
        """The metrics of a job, at most `limit` points of each; of its last attempt unless another is named."""
        path = _job_path(job, "metrics")
        return _series(self._transport.get(path, name=names or None, limit=limit, attempt=attempt))

    def system_metrics(self, job: str, limit: int = 1000, attempt: int | None = None) -> list[MetricSeries]:
        """Use of cores, memory and devices over an attempt's life."""
        return _series(self._transport.get(_job_path(job, "system-metrics"), limit=limit, attempt=attempt))

    def add_metrics(self, job: str, points: list[dict[str, Any]]) -> int:
        """Record metric points of a running job; returns how many."""
        answer = self._transport.call("POST", _job_path(job, "metrics"), {"points": points})
        return int(answer["recorded"])

    def log_streams(self, job: str, attempt: int | None = None) -> list[LogStreamInfo]:
        """The logs that a job has."""
        answer = self._transport.get(_job_path(job, "logs"), attempt=attempt)
        return [read_result(LogStreamInfo, item) for item in answer["streams"]]

    def logs(
        self,
        job: str,
        stream: str = "rank-0",
        *,
        follow: bool = False,
        offset: int = 0,
        attempt: int | None = None,
        patience: float = _PATIENCE_SECONDS,
    ) -> LogStream:
        """The exact bytes of a log; with `follow` until its real end, across restarts of the platform."""
        return LogStream(
            self._transport,
            _job_path(job, f"logs/{quote(stream)}"),
            attempt=attempt,
            offset=offset,
            follow=follow,
            patience=patience,
        )

    def files(self, job: str, attempt: int | None = None) -> list[LeftFile]:
        """The files that a job left in its working folders."""
        answer = self._transport.get(_job_path(job, "files"), attempt=attempt)
        return [read_result(LeftFile, item) for item in answer["files"]]

    def download_file(self, job: str, path: str, target: str | Path, attempt: int | None = None) -> Path:
        """Download a file that a job left; it appears whole or not at all."""
        place = Path(target)
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f".{place.name}.part")
        try:
            with (
                self._transport.stream(
                    _job_path(job, f"files/{quote(path)}"), query={"attempt": attempt}
                ) as pieces,
                part.open("wb") as file,
            ):
                for piece in pieces:
                    file.write(piece)
            part.replace(place)
        finally:
            part.unlink(missing_ok=True)
        return place

    def open_tensorboard(self, job: str, logdir: str = "") -> OpenTool:
        """A link that opens TensorBoard for a job, once and within five minutes."""
        answer = self._transport.call("POST", _job_path(job, "tensorboard"), {"logdir": logdir})
        return read_result(OpenTool, answer)

    def stop_tensorboard(self, job: str) -> int:
        """End the TensorBoards of a job; the number of them."""
        return int(self._transport.call("DELETE", _job_path(job, "tensorboard"))["stopped"])

    # --- waiting ------------------------------------------------------------------------------------------

    def watch(self, job: str, patience: float = _PATIENCE_SECONDS) -> Iterator[Job]:
        """The job as it is, and again whenever it changes, until it has ended."""
        path = _job_path(self.get(job).id, "watch")
        last: Job | None = None
        for event in resume_events(self._transport, path, dict[str, Any], patience):
            data = json.loads(event.data)
            if event.kind == "end":
                raise read_end(data)
            now = read_result(Job, data)
            # After a reconnect the present state comes again.
            if now != last:
                last = now
                yield now
            if now.is_ended:
                return

    def wait(self, job: str, timeout: float | None = None) -> Job:
        """Wait until the job has ended. A platform that is away meanwhile is waited for, like the job."""
        started = heard = time.monotonic()
        found = self.get(job)
        path = _job_path(found.id)
        while not found.is_ended:
            left = _LONG_ANSWER_SECONDS if timeout is None else started + timeout - time.monotonic()
            if left <= 0:
                raise Unavailable(
                    f"The job '{found.name}' is still {found.phase} after {timeout:g} s.",
                    hint=f"It goes on; `trainshed explain {found.name}` says what it does.",
                    code="timeout",
                )
            asked = time.monotonic()
            try:
                found = read_result(
                    Job, self._transport.get(path, wait=round(min(left, _LONG_ANSWER_SECONDS), 3))
                )
                heard = time.monotonic()
            except Unavailable as fault:
                if fault.code not in _AWAY or time.monotonic() - heard > _PATIENCE_SECONDS:
                    raise
            # An older platform answers at once, and one that is away not at all: neither is asked all the time.
            if not found.is_ended:
                pause = asked + _LOOK_SECONDS - time.monotonic()
                time.sleep(max(0.0, min(pause, left)))
        return found

    # --- changing -----------------------------------------------------------------------------------------

    def stop(self, job: str, reason: str = "") -> Job:
        """Ask a job to stop; it ends a moment later."""
        return read_result(Job, self._transport.call("POST", _job_path(job, "stop"), {"reason": reason}))

    def hold(self, job: str, seconds: int) -> Job:
        """Hold a job open for so long from now, or from when its training ends (dialect apulis)."""
        return read_result(Job, self._transport.call("POST", _job_path(job, "hold"), {"seconds": seconds}))

    def rerun(self, job: str, name: str = "") -> Job:
        """Submit a job again with the same code, inputs and settings."""
        return read_result(Job, self._transport.call("POST", _job_path(job, "rerun"), {"name": name}))

    def delete(self, job: str) -> None:
        """Delete a job that has ended, with its logs. Its outputs stay."""
        self._transport.call("DELETE", _job_path(job))


def _job_path(job: str, part: str = "") -> str:
    base = f"/api/v1/jobs/{quote(job, safe='')}"
    return f"{base}/{part}" if part else base


def _series(answer: Any) -> list[MetricSeries]:
    found = [read_result(MetricSeries, item) for item in answer["metrics"]]
    # A value that is no number comes as a word.
    return [
        replace(item, points=tuple(replace(point, value=float(point.value)) for point in item.points))
        for item in found
    ]
