"""How many requests this process answered, and how long they took."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from trainshed.api.native.exposition import sample

__all__ = ["RequestStatistics"]

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class RequestStatistics:
    """Counts by method, route and status, and a histogram of seconds by route. Safe from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str, int], int] = {}
        # Per route: one bucket for each bound and one for all the rest, then the sum.
        self._buckets: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Remember one answered request."""
        index = next((i for i, bound in enumerate(_BOUNDS) if seconds <= bound), len(_BOUNDS))
        key = (method if method.isalpha() and len(method) < 10 else "OTHER", route, status)
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + 1
            self._buckets.setdefault(route, [0] * (len(_BOUNDS) + 1))[index] += 1
            self._sums[route] = self._sums.get(route, 0.0) + seconds

    def expose(self) -> Iterator[str]:
        """The lines of the Prometheus text format."""
        with self._lock:
            counts = sorted(self._counts.items())
            buckets = {route: list(row) for route, row in sorted(self._buckets.items())}
            sums = dict(self._sums)
        yield "# HELP trainshed_http_requests_total Requests answered by the API."
        yield "# TYPE trainshed_http_requests_total counter"
        for (method, route, status), value in counts:
            yield sample(
                "trainshed_http_requests_total", value, method=method, route=route, status=str(status)
            )
        yield "# HELP trainshed_http_request_seconds Time from a request's arrival to the end of its answer."
        yield "# TYPE trainshed_http_request_seconds histogram"
        for route, row in buckets.items():
            total = 0
            for bound, value in zip((*map(str, _BOUNDS), "+Inf"), row, strict=True):
                total += value
                yield sample("trainshed_http_request_seconds_bucket", total, route=route, le=bound)
            yield sample("trainshed_http_request_seconds_sum", round(sums[route], 6), route=route)
            yield sample("trainshed_http_request_seconds_count", total, route=route)
