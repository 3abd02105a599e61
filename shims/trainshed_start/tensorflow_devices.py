"""TensorFlow in a rehearsal: it finds no GPU and computes on the CPU by itself; the log says what that means."""

from trainshed_start.hooks import say

__all__ = ["change"]


def change(name, tensorflow):
    """Name what is not mapped."""
    say(
        "TensorFlow computes on the CPU: lists of GPUs are empty, and strategies over NCCL or HCCL are not mapped"
    )
