"""Sentences that the platform itself writes (events, reasons, hints), in the visitor's language.

They are English wherever they are stored: logs, notifications and the API tell them so. A page for another reader
looks each of them up by its template, such as "Attempt {1} starts on {2}.", and fills the translation with what
stood in the holes. `scripts/translations.py` collects the templates from the modules that write them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path

__all__ = ["Sentences", "sentences_of"]

_FOLDER = Path(__file__).parent / "locale"
# {1:n} takes a number only.
_HOLE = re.compile(r"\{(\d)(:n)?\}")
_NUMBER = re.compile(r"\d[\d.]*")
# Between two sentences of one message.
_BORDER = re.compile(r"(?<=[.?!]) (?=[A-Z'`])")
# A hole may hold a sentence with holes of its own; deeper than this nothing of ours goes.
_DEEPEST = 4
# Nothing that we write is longer.
_LONGEST = 4000


class Sentences:
    """The sentences of one language, by the English template."""

    def __init__(self, table: Mapping[str, str]) -> None:
        self._whole = {english: told for english, told in table.items() if told and not _HOLE.search(english)}
        patterns = [
            _Pattern(english, told) for english, told in table.items() if told and english not in self._whole
        ]
        # By their first letters, and among those the one that says most first.
        self._patterns: dict[str, list[_Pattern]] = {}
        for pattern in sorted(patterns, key=lambda pattern: -sum(map(len, pattern.texts))):
            self._patterns.setdefault(pattern.texts[0][:2], []).append(pattern)
        self._most = max((len(_BORDER.split(english)) for english in table), default=1)
        self.translate = lru_cache(maxsize=4096)(self._translate)

    def _translate(self, text: str, depth: int = 0) -> str:
        """The text in this language; what is not known stays as it is, sentence by sentence."""
        if len(text) > _LONGEST or depth > _DEEPEST:
            return text
        found = self._look_up(text, depth)
        if found is not None:
            return found
        parts = _BORDER.split(text)
        told, first = [], 0
        while first < len(parts):
            # The longest run of sentences that is known as a whole.
            for last in range(min(first + self._most, len(parts)), first, -1):
                run = " ".join(parts[first:last])
                found = self._look_up(run, depth)
                if found is not None or last == first + 1:
                    told.append(found if found is not None else run)
                    first = last
                    break
        return _join(told)

    def _look_up(self, text: str, depth: int) -> str | None:
        if text in self._whole:
            return self._whole[text]
        # Behind a quotation mark a hole may follow at once.
        for pattern in (*self._of(text[:2]), *self._of(text[:1]), *self._of("")):
            values = pattern.match(text)
            if values is not None:
                known = [self._translate(value, depth + 1) for value in values]
                return _fill(pattern.told, dict(zip(pattern.holes, known, strict=True)))
        return None

    def _of(self, start: str) -> list[_Pattern]:
        return self._patterns.get(start, [])


def _fill(told: str, values: Mapping[str, str]) -> str:
    """A sentence with its numbered holes filled."""
    return _HOLE.sub(lambda hole: values[hole[1]], told)


class _Pattern:
    """A template with holes, and its translation."""

    def __init__(self, english: str, told: str) -> None:
        # The texts around the holes, and the holes' numbers, which need not begin with 1: some have been left out.
        self.texts = _HOLE.split(english)[::3]
        self.holes = _HOLE.split(english)[1::3]
        self._numbers = [index for index, form in enumerate(_HOLE.split(english)[2::3]) if form]
        self.told = told

    def match(self, text: str) -> list[str] | None:
        """What stands in the holes; None if the text is another one. Never slow: messages may hold a job's own words."""
        first, *middle, last = self.texts
        end = len(text) - len(last)
        if not text.startswith(first) or not text.endswith(last):
            return None
        values, at = [], len(first)
        for part in middle:
            found = text.find(part, at, end)
            if found < 0:
                return None
            values.append(text[at:found])
            at = found + len(part)
        if at > end:
            return None
        values.append(text[at:end])
        # A hole holds a few words; only one at the end may hold sentences.
        closed = values if last else values[:-1]
        if any(map(_BORDER.search, closed)) or not all(_NUMBER.fullmatch(values[n]) for n in self._numbers):
            return None
        return values


@cache
def sentences_of(language: str) -> Sentences:
    """The sentences of a language. English needs none."""
    if language == "en":
        return Sentences({})
    return Sentences(json.loads((_FOLDER / language / "sentences.json").read_text("utf-8")))


def _join(sentences: list[str]) -> str:
    """Chinese full stops want no space behind them."""
    text = ""
    for sentence in sentences:
        text += sentence if not text or text.endswith(("。", "？")) else f" {sentence}"
    return text
