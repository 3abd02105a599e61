"""Why a node's run failed, in words: the rank, the line of its log that tells the most, and the next step."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainshed.model.attempt import Ending, RankExit
from trainshed.model.failures.log_end import Finding, read_log_end

__all__ = ["diagnose_ranks", "telling_line"]

# How near to the first failure another rank's end must be to have brought it about.
_SAME_MOMENT = 60.0
# Ends that no other rank brings about: native code of this one crashed.
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)


@dataclass(frozen=True)
class _Suspect:
    """A rank that ended badly, and what its log says."""

    exit: RankExit
    finding: Finding
    # The log that says it, when it is not the rank's own.
    stream: str = ""


def diagnose_ranks(
    exits: list[RankExit],
    tails: Mapping[int, str],
    *,
    out_of_memory: bool,
    memory_mb: int,
    node: int = -1,
    launcher_tails: Mapping[str, str] | None = None,
) -> Ending:
    """The ending of a node whose ranks have all ended by themselves or because one of them failed.

    `tails` are the ends of the ranks' logs; `launcher_tails` those of the files that a launcher wrote for the
    processes it started, by the name of the log.
    """
    own = sorted(
        (e for e in exits if not e.ended_by_platform and e.exit_code), key=lambda e: (e.time, e.rank)
    )
    ended = sorted((e for e in exits if e.exit_code), key=lambda e: (e.time, e.rank))
    if not ended:
        return Ending("completed")
    suspects = own or ended
    if out_of_memory:
        return _out_of_memory(suspects[0], memory_mb, node)
    culprit = _blame(suspects, [e for e in ended if e.ended_by_platform], tails)
    culprit = _ask_launcher(culprit, launcher_tails or {})
    return _describe(culprit, node)


def telling_line(tail: str) -> tuple[str, str]:
    """The line near the end of a log that tells most about a failure, and the next step if we know one."""
    finding = read_log_end(tail)
    return finding.line, finding.hint


def _blame(suspects: list[RankExit], ended: list[RankExit], tails: Mapping[int, str]) -> _Suspect:
    """The rank to name: the first to fail whose failure does not merely follow from another's.

    A rank that loses its peer may be gone before the peer itself is: then the peer, whose log tells of an error
    of its own, was first, even if the platform had to end it.
    """
    first = _Suspect(suspects[0], _read(suspects[0], tails))
    # Reading a log takes its time: those of other ranks are only asked when the first one points at them.
    if not first.finding.follows:
        return first
    for rank_exit in suspects[1:]:
        if rank_exit.time - first.exit.time > _SAME_MOMENT:
            break
        finding = _read(rank_exit, tails)
        if not finding.follows:
            return _Suspect(rank_exit, finding)
    for rank_exit in ended:
        finding = _read(rank_exit, tails)
        if not finding.follows and (finding.is_known or finding.place):
            return _Suspect(rank_exit, finding)
    return first


def _read(rank_exit: RankExit, tails: Mapping[int, str]) -> Finding:
    return read_log_end(tails.get(rank_exit.rank, ""), crashed=rank_exit.signal in _CRASHES)


def _ask_launcher(culprit: _Suspect, launcher_tails: Mapping[str, str]) -> _Suspect:
    """Where a launcher keeps the logs of its processes in files, the reason stands in one of them."""
    if culprit.finding.is_known and not culprit.finding.follows:
        return culprit
    findings = [(stream, read_log_end(tail)) for stream, tail in sorted(launcher_tails.items())]
    telling = [(stream, found) for stream, found in findings if found.is_known and not found.follows]
    telling += [(stream, found) for stream, found in findings if found.place and not found.follows]
    if not culprit.finding.is_known and not culprit.finding.line:
        telling += [(stream, found) for stream, found in findings if found.line]
    if not telling:
        return culprit
    stream, found = telling[0]
    return _Suspect(culprit.exit, found, stream)


def _out_of_memory(first: RankExit, memory_mb: int, node: int) -> Ending:
    limit = f" ({memory_mb / 1024:g} GiB)" if memory_mb else ""
    return Ending(
        "failed",
        "user",
        "out_of_memory",
        f"Rank {first.rank} was ended because the node ran out of memory{limit}.",
        "Choose a flavor with more memory, or reduce the batch size.",
        rank=first.rank,
        exit_code=first.exit_code,
        signal=first.signal,
        reason="memory",
        node=node,
        time=first.time,
    )


def _describe(culprit: _Suspect, node: int) -> Ending:
    rank_exit, finding = culprit.exit, culprit.finding
    ending = Ending(
        "failed",
        finding.cause,
        "exit",
        rank=rank_exit.rank,
        exit_code=rank_exit.exit_code,
        signal=rank_exit.signal,
        line=finding.line,
        reason=finding.reason,
        place=finding.place,
        stream=f"node-{node}/{culprit.stream}" if culprit.stream and node > 0 else culprit.stream,
        node=node,
        time=rank_exit.time,
        follows=finding.follows,
    )
    said = f": {finding.meaning or finding.line}" if finding.line else ""
    if finding.rank >= 0 and finding.rank != rank_exit.rank:
        said += f" (its log names rank {finding.rank})"
    if rank_exit.signal:
        name = _signal_name(rank_exit.signal)
        # A line that nobody knows tells little about a crash; it is shown beside the message.
        told = said if finding.is_known else ""
        return replace(
            ending,
            code="signal",
            message=f"Rank {rank_exit.rank} was ended by signal {rank_exit.signal} ({name}){told}.",
            hint=finding.hint
            or "The process crashed in native code or was killed from within the job; see the end of its log.",
        )
    hint = finding.hint
    if rank_exit.exit_code in (126, 127) and not hint:
        hint = "The program to run was not found or is not executable; see the end of the log."
    return replace(
        ending,
        message=f"Rank {rank_exit.rank} ended with exit code {rank_exit.exit_code}{said}".rstrip(".") + ".",
        hint=hint or _next_step(finding),
    )


def _next_step(finding: Finding) -> str:
    """What to do about a failure that the catalogue does not know."""
    if finding.place:
        path, _, line = finding.place.rpartition(":")
        return (
            f"Look at line {line} of {path}: the script itself raised this, and the platform knows no more."
        )
    return "The cause is unknown to the platform; see the end of the log."


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
