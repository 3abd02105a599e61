"""Sizes and counts of files, as people read them."""

from __future__ import annotations

import pytest

from trainshed.model.size import count_files, format_size


@pytest.mark.parametrize(
    ("size", "said"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2.5e6, "2.5 MB"), (3e9, "3.0 GB"), (7e12, "7.0 TB")],
)
def test_sizes(size: float, said: str) -> None:
    assert format_size(size) == said


def test_counts() -> None:
    assert [count_files(number) for number in (0, 1, 2)] == ["0 files", "1 file", "2 files"]
