"""A node whose processes do nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from trainshed.runner.idle_watch import Activity, IdleWatch, count_bytes


class Node:
    """A node whose use a test sets."""

    def __init__(self) -> None:
        self.cpu, self.moved, self.is_served = 10.0, 1000, False

    def measure(self) -> Activity:
        return Activity(self.cpu, self.is_served)

    def count_bytes(self) -> int:
        return self.moved

    def watch(self, ranks: int = 1) -> IdleWatch:
        return IdleWatch(60, ranks, self.measure, self.count_bytes)


def test_a_node_that_sleeps_is_idle_until_it_works_again() -> None:
    node = Node()
    watch = node.watch()
    assert not any(watch.look(float(now)) for now in range(0, 60, 5))
    assert watch.look(60) and watch.idle_since > 0
    # Timers and watchdogs are no work.
    node.cpu += 0.1
    assert not watch.look(70) and watch.idle_since
    node.cpu += 3
    assert watch.look(80) and watch.idle_since == 0


@pytest.mark.parametrize(
    "work",
    [
        lambda node: setattr(node, "cpu", node.cpu + 1),
        # Data that trickle in from a slow disk or over the network.
        lambda node: setattr(node, "moved", node.moved + 200_000),
        # A device is at work, or the platform copies something on the script's behalf.
        lambda node: setattr(node, "is_served", True),
    ],
)
def test_any_kind_of_use_is_no_idleness(work: Any) -> None:
    node = Node()
    watch = node.watch()
    for now in range(0, 600, 10):
        work(node)
        assert not watch.look(float(now)) and not watch.idle_since


def test_ranks_that_wait_use_a_little_each() -> None:
    node = Node()
    watch = node.watch(8)
    for now in range(0, 110, 10):
        # Eight watchdogs with a hundredth of a core each.
        node.cpu += 0.8
        watch.look(float(now))
    assert watch.idle_since


def test_it_can_be_off() -> None:
    watch = IdleWatch(0, 1, Node().measure, Node().count_bytes)
    assert not any(watch.look(now) for now in (0.0, 1e6, 1e9))


def test_bytes_of_all_children_are_counted() -> None:
    before = count_bytes(os.getpid())
    script = "import os, sys; os.write(1, b'x' * 100000); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert child.stdin is not None and child.stdout is not None
    with child, child.stdin, child.stdout:
        got = 0
        while got < 100000:
            got += len(child.stdout.read(65536))
        assert count_bytes(os.getpid()) - before >= 100000
