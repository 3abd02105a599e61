"""What the end of a log tells about a failure.

A log often holds several tracebacks: of an error that was caught, of a rank that failed, of the launcher that
noticed. They are read from the last one backwards, and what only follows from another failure is passed over
as long as there is something better. What was said in passing and then overcome is no reason at all: ranks that
wait for each other complain until they meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from trainshed.model.attempt import Cause
from trainshed.model.failures import KNOWN_FAILURES, KnownFailure
from trainshed.model.late_pattern import late_pattern

__all__ = ["UNKNOWN", "Finding", "read_log_end"]

UNKNOWN = "unknown"
_LINE_LIMIT = 500
_MOST_LINES = 400
# A traceback with so many lines behind it was survived; without one, what was said so long ago is no reason.
_SURVIVED_AFTER = 60
_ANSI = late_pattern(r"\x1b\[[0-9;?]*[A-Za-z]")
# Launchers put the rank before each line: torchrun, mpirun --tag-output, torchrun --tee.
_RANK_TAG = late_pattern(r"^(?:\[rank(\d+)\]:|\[\d+,(\d+)\]<std(?:err|out)>:|\[default(\d+)\]:)[ \t]?")
_TRACEBACK = "Traceback (most recent call last):"
_CHAINS = ("During handling of the above exception", "The above exception was the direct cause")
_PYTHON_ERROR = late_pattern(
    r"^(?:[A-Za-z_][\w.]*\.)?[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|Warning|Failure|Timeout)\b(?::.*)?$"
)
_FRAME = late_pattern(r'^\s*File "([^"]{1,400})", line (\d{1,7})')
_LIBRARIES = ("site-packages/", "dist-packages/", "/lib/python", "<", "/shims/")
# Said by whoever noticed that a process was gone; an error of its own beside it tells more.
_LAUNCHER_WORDS = ("launcher", "interrupted")
_RANK_WITHIN = late_pattern(r"\bRank (\d+)\]")
_IN_PASSING = late_pattern(
    r"\b(?:WARN(?:ING)?|INFO|DEBUG)\b|^\[?[IW]\d{4}\b|^\[[IW] |\w+Warning: |\b[Rr]etrying\b|\bRetry\(total="
)
# Such a line may belong to a failure; any other one is what a script writes while it works.
_OF_A_FAILURE = late_pattern(
    r"(?i)error|exception|traceback|fail|fatal|critical|fault|abort|kill|terminat|signal|exit|core dumped|time[ds]? ?out"
    r"|^\W*$|^\s|^[#@*<-]|^frame #|^\[?[EF]\d{4}\b|^\[[EF] "
)
# torchrun and mpirun name the process that failed.
_NAMED_RANK = (
    late_pattern(r"^\s*rank\s*: (\d+) \(local_rank: \d+\)"),
    late_pattern(r"^Container rank (\d+) status failed"),
    late_pattern(r"noticed that process rank (\d+)\b"),
    late_pattern(r"^\s*Process name: \[.*[,@](\d+)\]"),
)


@dataclass(frozen=True)
class _Line:
    text: str
    rank: int
    number: int = 0

    @property
    def is_in_passing(self) -> bool:
        """Whether it was said while work went on, not as the reason for an end."""
        return _IN_PASSING.search(self.text) is not None and _PYTHON_ERROR.match(self.text) is None


@dataclass(frozen=True)
class Finding:
    """What was found: the line that tells most, what it means, and the next step."""

    reason: str
    line: str
    # Empty when the cause is unknown.
    meaning: str = ""
    hint: str = ""
    # The place in the user's code, as `/job/code/train.py:12`.
    place: str = ""
    # The rank that the log itself names, when a launcher started several; -1 if it names none.
    rank: int = -1
    # True when this only follows from the failure of another process.
    follows: bool = False
    cause: Cause = "user"

    @property
    def is_known(self) -> bool:
        """Whether the catalogue knows this failure."""
        return self.reason != UNKNOWN


def read_log_end(tail: str, *, crashed: bool = False) -> Finding:
    """The finding that explains most of the end of a log.

    `crashed` is true of a process that died in native code: what it had said in passing is no reason for that.
    """
    lines = _clean(tail)
    named = _named_rank(lines)
    past = _Past(lines, crashed)
    fallback: Finding | None = None
    for passage in _passages(lines):
        found = _read_passage(passage, past)
        if found is None:
            continue
        if not found.follows:
            return _with_rank(found, named)
        fallback = fallback or found
    if fallback is not None:
        return _with_rank(fallback, named)
    return Finding(UNKNOWN, lines[-1].text.strip() if lines else "", rank=named)


class _Past:
    """What the rest of a log says about a line: whether it was overcome."""

    def __init__(self, lines: list[_Line], crashed: bool) -> None:
        self._lines = lines
        self._crashed = crashed
        self._overcome_at: dict[str, int] = {}

    @cached_property
    def _last_output(self) -> int:
        output = (
            line.number
            for line in reversed(self._lines)
            if not line.is_in_passing and not _OF_A_FAILURE.search(line.text)
        )
        return next(output, -1)

    def holds(self, failure: KnownFailure, line: _Line) -> bool:
        """Whether this line can be the reason for the end that came later."""
        if line.is_in_passing and (self._crashed or not failure.follows):
            return False
        if failure.waiting and (line.is_in_passing or self._crashed) and line.number < self._last_output:
            return False
        return not failure.overcome or line.number > self._overcome_line(failure)

    def _overcome_line(self, failure: KnownFailure) -> int:
        if failure.pattern not in self._overcome_at:
            numbers = (line.number for line in reversed(self._lines) if failure.is_overcome_by(line.text))
            self._overcome_at[failure.pattern] = next(numbers, -1)
        return self._overcome_at[failure.pattern]


def _clean(tail: str) -> list[_Line]:
    lines: list[_Line] = []
    for raw in tail.split("\n"):
        # What a progress bar has overwritten was not on the screen any more.
        text = _ANSI.sub("", raw).rstrip("\r").rsplit("\r", 1)[-1]
        tag = _RANK_TAG.match(text)
        rank = int(next(group for group in tag.groups() if group)) if tag else -1
        text = (text[tag.end() :] if tag else text).rstrip()[:_LINE_LIMIT]
        if text.strip():
            lines.append(_Line(text, rank, len(lines)))
    return lines[-_MOST_LINES:]


def _named_rank(lines: list[_Line]) -> int:
    for line in reversed(lines):
        for pattern in _NAMED_RANK:
            found = pattern.search(line.text)
            if found:
                return int(found[1])
    return -1


def _passages(lines: list[_Line]) -> Iterator[list[_Line]]:
    """The log in pieces, last first: each begins with a traceback that no other one leads to."""
    end = len(lines)
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].text.lstrip().startswith(_TRACEBACK) and not _is_chained(lines, index):
            yield lines[index:end]
            end = index
    if end:
        yield lines[:end]


def _is_chained(lines: list[_Line], index: int) -> bool:
    return index > 0 and lines[index - 1].text.startswith(_CHAINS)


def _read_passage(passage: list[_Line], past: _Past) -> Finding | None:
    """What a traceback and the lines behind it say, or lines without a traceback; None if they say nothing."""
    is_traceback = passage[0].text.lstrip().startswith(_TRACEBACK)
    errors = [index for index, line in enumerate(passage) if _PYTHON_ERROR.match(line.text)]
    if not is_traceback or (errors and len(passage) - errors[-1] > _SURVIVED_AFTER):
        passage, is_traceback = passage[-_SURVIVED_AFTER:], False
        errors = [index for index, line in enumerate(passage) if _PYTHON_ERROR.match(line.text)]
    place = _place(passage) if is_traceback or errors else ""
    # The error itself first. Then what stands around it: native code tells its part in lines of its own, while
    # indented lines of a traceback only quote the source.
    last = errors[-1] if errors else len(passage)
    around = [
        line
        for index, line in enumerate(passage)
        if index > last or not (is_traceback and line.text.startswith("  "))
    ]
    consequence: Finding | None = None
    for line in (*(passage[index] for index in reversed(errors)), *reversed(around)):
        match = _recognize(line, past)
        if match is None:
            continue
        failure, groups = match
        found = Finding(
            failure.reason,
            line.text.strip(),
            failure.meaning.format(*groups),
            failure.hint.format(*groups),
            place,
            line.rank if line.rank >= 0 else _rank_within(line.text),
            failure.follows,
            failure.cause,
        )
        if not found.follows:
            return found
        if not errors or line.text == passage[last].text or failure.reason not in _LAUNCHER_WORDS:
            consequence = consequence or found
    if consequence is not None:
        return consequence
    if errors:
        error = passage[last]
        return Finding(UNKNOWN, error.text.strip(), place=place, rank=error.rank)
    return None


def _rank_within(text: str) -> int:
    found = _RANK_WITHIN.search(text)
    return int(found[1]) if found else -1


def _recognize(line: _Line, past: _Past) -> tuple[KnownFailure, tuple[str, ...]] | None:
    for failure in KNOWN_FAILURES:
        groups = failure.match(line.text)
        if groups is not None and past.holds(failure, line):
            return failure, groups
    return None


def _place(passage: list[_Line]) -> str:
    """The innermost line of the user's own code."""
    for line in reversed(passage):
        frame = _FRAME.match(line.text)
        if frame and not any(part in frame[1] for part in _LIBRARIES):
            return f"{frame[1]}:{frame[2]}"
    return ""


def _with_rank(finding: Finding, named: int) -> Finding:
    if finding.rank >= 0 or named < 0:
        return finding
    return Finding(**{**finding.__dict__, "rank": named})
