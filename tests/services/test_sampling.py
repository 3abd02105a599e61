"""Few points that keep the shape of a curve."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from trainshed.services.sampling import Sampler


def sample(values: list[float], limit: int) -> Sampler[int]:
    sampler: Sampler[int] = Sampler(limit)
    for position, value in enumerate(values):
        sampler.add(position, value)
    return sampler


@given(st.lists(st.floats(allow_nan=False), max_size=400), st.integers(1, 60))
def test_few_points_keep_extremes_order_and_end(values: list[float], limit: int) -> None:
    sampler = sample(values, limit)
    points = sampler.points()
    assert sampler.count == len(values)
    assert len(points) <= limit
    assert points == sorted(set(points))
    if len(values) <= limit:
        assert points == list(range(len(values)))
    if values:
        assert points[-1] == len(values) - 1
    if values and limit >= 3:
        kept = [values[position] for position in points]
        assert min(kept) == min(values)
        assert max(kept) == max(values)


def test_many_points_are_spread_evenly() -> None:
    points = sample([math.sin(number / 50) for number in range(100_000)], 300).points()
    assert 100 <= len(points) <= 300
    assert max(b - a for a, b in itertools.pairwise(points)) < 100_000 / 30


def test_a_diverged_value_is_never_left_out() -> None:
    values = [1.0] * 5000
    values[1234] = math.nan
    assert 1234 in sample(values, 30).points()
