"""Why a job failed, in words: the rank, the line of its log that tells the most, and the next step."""

from __future__ import annotations

import re
import signal
from dataclasses import replace

from trainshed.model.attempt import Ending, RankExit

__all__ = ["diagnose_ranks", "telling_line"]

# What a line of a log means for its owner, most specific first: pattern, next step.
_KNOWN_LINES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), hint)
    for pattern, hint in (
        (
            r"ModuleNotFoundError: No module named '([^']+)'",
            "Add '{0}' to requirements.txt beside the boot file, or choose an engine that has it.",
        ),
        (
            r"error: unrecognized arguments: (.{1,200})",
            "The script does not know {0}: remove it from the job's parameters, inputs or outputs, or let the "
            "script use parse_known_args().",
        ),
        (
            r"error: the following arguments are required: (.{1,200})",
            "Give {0} as parameter, input or output of the job.",
        ),
        (r"(?:CUDA|NPU|HBM) out of memory", "Reduce the batch size, or use more devices."),
        (
            r"^(?:numpy\S*\.)?(?:_ArrayMemoryError|MemoryError)",
            "Choose a flavor with more memory, or reduce the batch size.",
        ),
        (
            r"No space left on device",
            "The node's disk is full: write less, or ask the administrator for room.",
        ),
        (
            r"(?:Temporary failure in name resolution|Name or service not known|Network is unreachable)",
            "The job has no way to that host: upload the data to the object store, or set `network: open`.",
        ),
        (
            r"FileNotFoundError: .*'([^']+)'",
            "'{0}' is not there: check the path, the inputs and the code folder.",
        ),
        (
            r"PermissionError: .*'([^']+)'",
            "The job may not touch '{0}': write below its outputs, /cache or /tmp.",
        ),
        (r"Address already in use", "Two processes of the job use one port: derive the port from the rank."),
        (r"(?:SyntaxError|IndentationError|TabError): ", "Fix the line that the log names and submit again."),
        (r": command not found", "The command is not in the environment: check its spelling and the engine."),
    )
)
_PYTHON_ERROR = re.compile(
    r"^(?:[A-Za-z_][\w.]*\.)?[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|Warning)\b.*"
)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_LINE_LIMIT = 500


def diagnose_ranks(
    exits: list[RankExit], tails: dict[int, str], *, out_of_memory: bool, memory_mb: int
) -> Ending:
    """The ending of a node whose ranks have all ended by themselves or because one of them failed."""
    own = sorted(
        (e for e in exits if not e.ended_by_platform and e.exit_code), key=lambda e: (e.time, e.rank)
    )
    failed = own or sorted((e for e in exits if e.exit_code), key=lambda e: (e.time, e.rank))
    if not failed:
        return Ending("completed")
    first = failed[0]
    base = Ending("failed", "user", "exit", rank=first.rank, exit_code=first.exit_code, signal=first.signal)
    if out_of_memory:
        limit = f" ({memory_mb / 1024:g} GiB)" if memory_mb else ""
        return replace(
            base,
            code="out_of_memory",
            message=f"Rank {first.rank} was ended because the node ran out of memory{limit}.",
            hint="Choose a flavor with more memory, or reduce the batch size.",
        )
    line, hint = telling_line(tails.get(first.rank, ""))
    if first.signal:
        name = _signal_name(first.signal)
        return replace(
            base,
            code="signal",
            message=f"Rank {first.rank} was ended by signal {first.signal} ({name}).",
            hint=hint
            or "The process crashed in native code or was killed from within the job; see the end of its log.",
            line=line,
        )
    if first.exit_code in (126, 127) and not hint:
        hint = "The program to run was not found or is not executable; see the end of the log."
    said = f": {line}" if line else "."
    return replace(
        base,
        message=f"Rank {first.rank} ended with exit code {first.exit_code}{said}",
        hint=hint or "See the end of its log.",
        line=line,
    )


def telling_line(tail: str) -> tuple[str, str]:
    """The line near the end of a log that tells most about a failure, and the next step if we know one."""
    lines = [_ANSI.sub("", line).rsplit("\r", 1)[-1].strip()[:_LINE_LIMIT] for line in tail.split("\n")]
    lines = [line for line in lines if line][-200:]
    for line in reversed(lines):
        for pattern, hint in _KNOWN_LINES:
            match = pattern.search(line)
            if match:
                return line, hint.format(*match.groups())
    for line in reversed(lines):
        if _PYTHON_ERROR.match(line):
            return line, ""
    return (lines[-1], "") if lines else ("", "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
