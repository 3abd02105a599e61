"""Group commit: one writes for all, and nobody is forgotten."""

from __future__ import annotations

import signal
import sqlite3
import threading
from types import FrameType

import pytest

from trainshed.model.errors import InvalidInput
from trainshed.store.embedded.store import EmbeddedStore


def test_each_gets_its_own_result_and_its_own_error(store: EmbeddedStore) -> None:
    results: dict[int, object] = {}

    def write(number: int) -> None:
        def work(connection: sqlite3.Connection) -> int:
            if number % 5 == 0:
                raise InvalidInput(str(number))
            return number

        for _ in range(20):
            try:
                results[number] = store._transactions.write(work)
            except InvalidInput as error:
                results[number] = error.message

    threads = [threading.Thread(target=write, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {number: number if number % 5 else str(number) for number in range(30)}


def test_a_writer_that_is_interrupted_while_it_waits_blocks_nobody(store: EmbeddedStore) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hold(connection: sqlite3.Connection) -> None:
        begun.set()
        go_on.wait(90)

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    done: list[int] = []
    leader = threading.Thread(target=store._transactions.write, args=(hold,))
    leader.start()
    assert begun.wait(90)
    followers = [
        threading.Thread(target=store._transactions.write, args=(lambda c, n=n: done.append(n),))
        for n in range(3)
    ]
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            store._transactions.write(lambda c: done.append(99))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    for follower in followers:
        follower.start()
    go_on.set()
    for thread in (leader, *followers):
        thread.join(90)
        assert not thread.is_alive()
    assert sorted(done) == [0, 1, 2]
    store.put("data", "k", b"goes on")
    assert store.info("data", "k").size == 7
