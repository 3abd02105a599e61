"""What is told about a job that has failed: who was first, where, what became of the others, the last lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainshed.db.attempts import AttemptRow
from trainshed.model.errors import TrainshedError
from trainshed.services.identity import Caller
from trainshed.services.logs import read_log
from trainshed.services.platform import Platform

__all__ = ["failure_facts", "last_lines", "telling_stream"]

_LAST_BYTES = 8192
_LAST_LINES = 15
_LONGEST_LINE = 300
_CAUSES = {
    "user": "the job's own code",
    "limit": "a limit that the job set",
    "stop": "a stop that was asked for",
    "platform": "the platform, not the job",
    "node": "the machine, not the job",
}


def failure_facts(ending: dict[str, Any], attempt: AttemptRow | None) -> list[str]:
    """The facts of a failure, one sentence each."""
    facts = []
    cause = _CAUSES.get(str(ending.get("cause", "")))
    if cause:
        facts.append(f"Cause: {cause}.")
    rank = ending.get("rank", -1)
    if rank >= 0:
        facts.append(f"First to fail: rank {rank}{_where(ending, attempt)}.")
    elif attempt is not None and len(attempt.placements) > 1 and _where(ending, attempt):
        facts.append(f"It happened{_where(ending, attempt)}.")
    if ending.get("stream"):
        facts.append(f"A launcher started it; the log {ending['stream']} tells why.")
    if ending.get("place"):
        path, _, line = str(ending["place"]).rpartition(":")
        facts.append(f"Line {line} of {path}.")
    if ending.get("line"):
        facts.append(f"Its log says: {ending['line']}")
    if ending.get("reason") == "unknown":
        facts.append("The platform does not know this failure; the last lines of the log follow.")
    if ending.get("follows"):
        facts.append("It looks like the consequence of another failure, which no log tells of.")
    facts += _others(rank, attempt)
    return facts


def last_lines(platform: Platform, caller: Caller, job_id: str, ending: dict[str, Any]) -> list[str]:
    """The last lines of the log that tells most, without secrets; none if there is no such log."""
    stream = telling_stream(ending)
    if not stream:
        return []
    try:
        size = read_log(platform, caller, job_id, stream=stream, limit=1).size
        offset = max(0, size - _LAST_BYTES)
        data = read_log(platform, caller, job_id, stream=stream, offset=offset, limit=_LAST_BYTES).data
    except TrainshedError:
        return []
    lines = data.decode("utf-8", "replace").split("\n")
    # The first one was cut, unless the log began there.
    lines = lines[1:] if offset else lines
    shown = [line.rsplit("\r", 1)[-1].rstrip()[:_LONGEST_LINE] for line in lines]
    return [line for line in shown if line][-_LAST_LINES:]


def telling_stream(ending: dict[str, Any]) -> str:
    """The log to open first: of the process that failed, of the platform if there was none; empty: none."""
    if ending.get("stream"):
        return str(ending["stream"])
    rank = ending.get("rank", -1)
    if isinstance(rank, int) and rank >= 0:
        return f"rank-{rank}"
    if ending.get("outcome") != "failed":
        return ""
    node = ending.get("node", -1)
    return f"node-{node}/platform" if isinstance(node, int) and node > 0 else "platform"


def _where(ending: dict[str, Any], attempt: AttemptRow | None) -> str:
    node = ending.get("node", -1)
    if attempt is None or not 0 <= node < len(attempt.placements):
        return ""
    machine = str(attempt.placements[node].get("node", ""))
    if len(attempt.placements) == 1:
        return f" on {machine}" if machine else ""
    return f" on node {node}" + (f" ({machine})" if machine else "")


def _others(first: int, attempt: AttemptRow | None) -> list[str]:
    """What became of the other ranks."""
    exits = [exit_ for report in (attempt.reports if attempt else ()) for exit_ in report.get("ranks", ())]
    others = [exit_ for exit_ in exits if exit_.get("rank") != first]
    failed = [e["rank"] for e in others if e.get("exit_code") and not e.get("ended_by_platform")]
    ended = [e["rank"] for e in others if e.get("exit_code") and e.get("ended_by_platform")]
    well = [e["rank"] for e in others if not e.get("exit_code")]
    return [
        f"{words} {_ranges(ranks)}."
        for words, ranks in (
            ("Failed after it: rank", failed),
            ("Ended because of it: rank", ended),
            ("Ended well before: rank", well),
        )
        if ranks and first >= 0
    ]


def _ranges(numbers: Iterable[int]) -> str:
    """`0-3, 5`."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ", ".join("-".join(str(number) for number in part) for part in parts)
