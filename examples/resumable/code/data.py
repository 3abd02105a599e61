"""A small problem that all three scripts learn: which of two noisy spirals a point belongs to."""

from __future__ import annotations

import numpy as np


def make_points(count: int = 512) -> tuple[np.ndarray, np.ndarray]:
    """Points and their labels; the same ones every time."""
    random = np.random.default_rng(7)
    labels = random.integers(0, 2, count)
    turn = random.uniform(0.3, 3.0, count) * np.pi
    angle = turn + np.pi * labels
    points = np.stack([np.cos(angle), np.sin(angle)], 1) * turn[:, None] / np.pi
    return (points + random.normal(0, 0.05, points.shape)).astype(np.float32), labels.astype(np.int32)


def shuffle(epoch: int, count: int = 512, batch: int = 64) -> np.ndarray:
    """The order of an epoch, in batches. It depends on the epoch alone: an epoch that is begun again is the same."""
    return np.random.default_rng(1000 + epoch).permutation(count).reshape(-1, batch)
