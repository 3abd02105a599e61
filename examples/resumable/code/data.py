"""A small problem that all three scripts learn: whether a point lies outside a circle."""

from __future__ import annotations

import numpy as np


def make_points(count: int = 512) -> tuple[np.ndarray, np.ndarray]:
    """Points and their labels; the same ones every time."""
    random = np.random.default_rng(7)
    points = random.normal(0, 1, (count, 2)).astype(np.float32)
    radius = np.hypot(points[:, 0], points[:, 1]) + random.normal(0, 0.05, count)
    return points, (radius > 1.1).astype(np.int32)


def shuffle(epoch: int, count: int = 512, batch: int = 64) -> np.ndarray:
    """The order of an epoch, in batches. It depends on the epoch alone: an epoch that is begun again is the same."""
    return np.random.default_rng(1000 + epoch).permutation(count).reshape(-1, batch)
