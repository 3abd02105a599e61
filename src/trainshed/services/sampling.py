"""Choosing few points of many so that a curve keeps its shape: its lowest, highest and last points."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Sampler"]

T = TypeVar("T")


@dataclass
class _Entry(Generic[T]):
    position: int
    value: float
    item: T


@dataclass
class _Stretch(Generic[T]):
    lowest: _Entry[T]
    highest: _Entry[T]
    last: _Entry[T]

    def merge(self, later: _Stretch[T]) -> None:
        if _order(later.lowest.value) < _order(self.lowest.value):
            self.lowest = later.lowest
        if _order(later.highest.value) > _order(self.highest.value):
            self.highest = later.highest
        self.last = later.last


class Sampler(Generic[T]):
    """Takes any number of points and keeps at most `limit` of them, in memory as well."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._width = 1
        self._in_last = 0
        self._stretches: list[_Stretch[T]] = []
        self.count = 0

    def add(self, item: T, value: float) -> None:
        """Take the next point."""
        entry = _Entry(self.count, value, item)
        self.count += 1
        single = _Stretch(entry, entry, entry)
        if self._stretches and self._in_last < self._width:
            self._stretches[-1].merge(single)
            self._in_last += 1
            return
        self._stretches.append(single)
        self._in_last = 1
        while len(self._stretches) > 1 and len(self._stretches) * min(3, self._width) > self._limit:
            self._halve()

    def points(self) -> list[T]:
        """The chosen points in their order. The very last one is always among them."""
        chosen: dict[int, T] = {}
        for stretch in self._stretches:
            for entry in (stretch.lowest, stretch.highest, stretch.last):
                chosen[entry.position] = entry.item
        return [item for _, item in sorted(chosen.items(), key=lambda pair: pair[0])][-self._limit :]

    def _halve(self) -> None:
        """Join neighbours two by two."""
        pairs = self._stretches[::2]
        for first, second in zip(pairs, self._stretches[1::2], strict=False):
            first.merge(second)
        self._in_last += self._width if len(self._stretches) % 2 == 0 else 0
        self._stretches = pairs
        self._width *= 2


def _order(value: float) -> float:
    # A value that is not a number is the most important point of a curve: it counts as the highest.
    return math.inf if math.isnan(value) else value
