"""Patterns that are compiled at their first use behave like those of `re`."""

from __future__ import annotations

import re

import pytest

from trainshed.model.late_pattern import compile_patterns, late_pattern


def test_late_pattern_finds_what_the_same_pattern_of_re_finds() -> None:
    late, plain = late_pattern(r"(?P<name>[a-z]+)=(\d+)"), re.compile(r"(?P<name>[a-z]+)=(\d+)")
    text = "a=1, b=22"
    assert [m.groups() for m in late.finditer(text)] == [m.groups() for m in plain.finditer(text)]
    assert late.findall(text) == plain.findall(text)
    assert late.sub("-", text) == plain.sub("-", text)
    assert late.fullmatch("a=1") and late.match(text) and late.search("? b=2")
    assert late.pattern == plain.pattern
    assert late.groupindex == plain.groupindex


def test_a_mistake_in_a_pattern_is_met_at_its_first_use() -> None:
    wrong = late_pattern("(")
    with pytest.raises(re.error):
        wrong.search("")
    # What is broken must not disturb other tests that compile all patterns.
    vars(wrong)["search"] = None


def test_all_patterns_can_be_compiled_at_once() -> None:
    late = late_pattern("x+")
    assert "search" not in vars(late)
    compile_patterns()
    assert "search" in vars(late)
