"""Reads metrics while the job runs: from its log lines, and from the file that `log_metric` writes."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainshed.model.metric_lines import MetricParser, MetricPoint

__all__ = ["MetricTail"]

_READ = 1 << 20
# A log that grows faster than it can be read is sampled, never allowed to hold up the job's end.
_MOST_BACKLOG = 32 << 20
_MOST_PER_TICK = 8 << 20
_LONGEST_LINE = 64 << 10
_LONGEST_NAME = 128


class _Tail:
    """Whole lines of a growing file."""

    def __init__(self, path: Path, rank: int) -> None:
        self.path = path
        self.rank = rank
        self._parser: MetricParser | None = None
        self._offset = 0
        self._rest = b""
        self._descriptor: int | None = None

    def lines(self, *, final: bool) -> list[str]:
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError:
                return []
        size = os.fstat(self._descriptor).st_size
        if size - self._offset > _MOST_BACKLOG:
            self._offset, self._rest = size - _MOST_PER_TICK, b""
        lines: list[str] = []
        end = min(size, self._offset + _MOST_PER_TICK)
        while self._offset < end:
            data = os.pread(self._descriptor, min(_READ, end - self._offset), self._offset)
            if not data:
                break
            self._offset += len(data)
            *whole, self._rest = (self._rest + data).split(b"\n")
            lines += [line[-_LONGEST_LINE:].decode("utf-8", "replace") for line in whole]
            self._rest = self._rest[-_LONGEST_LINE:]
        if final and self._rest:
            lines.append(self._rest.decode("utf-8", "replace"))
            self._rest = b""
        return lines

    def points(self, line: str) -> list[MetricPoint]:
        """The points that a line of this log holds."""
        if self._parser is None:
            # Not before there is something to read: many logs stay empty.
            from trainshed.model.metric_lines import MetricParser

            self._parser = MetricParser()
        return self._parser.feed(line)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class MetricTail:
    """Follows all ranks of a node and writes their metric points into one file."""

    def __init__(self, rank_logs: dict[int, Path], job_file: Path, target: Path, first_rank: int) -> None:
        self._logs = [_Tail(path, rank) for rank, path in rank_logs.items()]
        self._job_file = _Tail(job_file, first_rank)
        self._target = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self, *, final: bool = False) -> None:
        """Take in what is new."""
        now = time.time()
        rows: list[dict[str, Any]] = []
        for tail in self._logs:
            for line in tail.lines(final=final):
                rows += [_row(now, tail.rank, point) for point in tail.points(line)]
        for line in self._job_file.lines(final=final):
            row = _given(now, self._job_file.rank, line)
            if row is not None:
                rows.append(row)
        if rows:
            data = "".join(json.dumps(row) + "\n" for row in rows).encode()
            while data:
                data = data[os.write(self._target, data) :]

    def close(self) -> None:
        """Close all files."""
        for tail in (*self._logs, self._job_file):
            tail.close()
        os.close(self._target)


def _row(now: float, rank: int, point: MetricPoint) -> dict[str, Any]:
    row: dict[str, Any] = {
        "time": round(now, 3),
        "rank": rank,
        "name": point.name,
        "value": _plain(point.value),
    }
    if point.step is not None:
        row["step"] = point.step
    if point.epoch is not None:
        row["epoch"] = point.epoch
    return row


def _given(now: float, rank: int, line: str) -> dict[str, Any] | None:
    """A point that the job wrote itself; anything that does not look like one is left out."""
    try:
        data = json.loads(line)
        name, value = str(data["name"])[:_LONGEST_NAME], float(data["value"])
        row: dict[str, Any] = {
            "time": round(float(data.get("time", now)), 3),
            "rank": int(data.get("rank", rank)),
        }
        row.update(name=name, value=_plain(value))
        for field in ("step", "epoch"):
            if data.get(field) is not None:
                row[field] = int(data[field])
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None
    return row if name else None


def _plain(value: float) -> float | str:
    """JSON has no word for these numbers; a diverged loss must still be seen."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value
