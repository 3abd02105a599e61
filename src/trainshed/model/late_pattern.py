"""Patterns that are compiled when they are first used: most runs need few of those that a module knows."""

from __future__ import annotations

import re
from typing import Any, cast

__all__ = ["compile_patterns", "late_pattern"]

_METHODS = ("findall", "finditer", "fullmatch", "match", "pattern", "search", "split", "sub")


class _LatePattern:
    def __init__(self, text: str) -> None:
        self._text = text

    def compile(self) -> re.Pattern[str]:
        pattern = re.compile(self._text)
        # From now on the pattern's own methods are attributes of this object.
        for each in _METHODS:
            setattr(self, each, getattr(pattern, each))
        return pattern

    def __getattr__(self, name: str) -> Any:
        return getattr(self.compile(), name)


_known: list[_LatePattern] = []


def late_pattern(text: str) -> re.Pattern[str]:
    """A pattern like that of `re.compile`. A mistake in its text is met at its first use."""
    _known.append(_LatePattern(text))
    return cast("re.Pattern[str]", _known[-1])


def compile_patterns() -> None:
    """Compile all patterns that are known by now: a process that forks many others does it once for all of them."""
    for pattern in _known:
        if "search" not in vars(pattern):
            pattern.compile()
