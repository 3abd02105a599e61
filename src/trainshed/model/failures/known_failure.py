"""One known way to fail: how a log tells it, what it means and what to do about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from trainshed.model.attempt import Cause

__all__ = ["KnownFailure", "known"]


@dataclass(frozen=True)
class KnownFailure:
    """A line of a log and its meaning. `{0}`, `{1}` … stand for the groups of the pattern."""

    # A stable word for machines.
    reason: str
    pattern: str
    # What happened, as the end of a sentence.
    meaning: str
    hint: str
    # Such a line follows from another failure: of another rank, or of a process that a launcher started.
    follows: bool = False
    # Whose fault it is; only what no script can bring about is blamed on the machine.
    cause: Cause = "user"
    # Said while a rank waits for others, again and again: what the script writes afterwards shows that they came.
    waiting: bool = False
    # A line that says that it went well in the end.
    overcome: str = ""

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        # Made when a job fails: a runner whose job ends well never needs it.
        return re.compile(self.pattern)

    def match(self, line: str) -> tuple[str, ...] | None:
        """What the groups of the pattern hold in this line; None if it says something else."""
        found = self._regex.search(line)
        return tuple(group or "" for group in found.groups()) if found else None

    @cached_property
    def _overcome(self) -> re.Pattern[str]:
        return re.compile(self.overcome)

    def is_overcome_by(self, line: str) -> bool:
        """Whether this line says that nothing came of such a failure."""
        return bool(self.overcome) and self._overcome.search(line) is not None


def known(
    reason: str,
    pattern: str,
    meaning: str,
    hint: str,
    *,
    follows: bool = False,
    cause: Cause = "user",
    waiting: bool = False,
    overcome: str = "",
) -> KnownFailure:
    """A known failure, from the text of its pattern."""
    return KnownFailure(reason, pattern, meaning, hint, follows, cause, waiting, overcome)
