"""The desk: one thread for short work, more only where it waits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from trainshed.api.obs.desk import Desk, Later


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in an event loop of its own."""

    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


@in_a_loop
async def test_results_and_errors_reach_those_who_wait() -> None:
    desk = Desk(4)

    def fail(number: int) -> int:
        raise ValueError(str(number))

    results = await asyncio.gather(
        *(desk.run(pow, number, 2) for number in range(100)),
        *(desk.run(fail, number) for number in range(100)),
        return_exceptions=True,
    )
    assert results[:100] == [number**2 for number in range(100)]
    assert [str(error) for error in results[100:]] == [str(number) for number in range(100)]
    assert all(isinstance(error, ValueError) for error in results[100:])


@in_a_loop
async def test_work_that_waits_does_not_keep_others_waiting() -> None:
    desk = Desk(4)
    gate = threading.Event()
    slow = [asyncio.create_task(desk.run(gate.wait, 60)) for _ in range(3)]
    assert await asyncio.wait_for(asyncio.gather(*(desk.run(abs, -1) for _ in range(50))), 30) == [1] * 50
    assert not any(task.done() for task in slow)
    gate.set()
    assert await asyncio.gather(*slow) == [True] * 3


@in_a_loop
async def test_more_work_than_threads_waits_its_turn() -> None:
    desk = Desk(2)
    gate = threading.Event()
    slow = [asyncio.create_task(desk.run(gate.wait, 60)) for _ in range(20)]
    await asyncio.sleep(0.1)
    assert not any(task.done() for task in slow)
    gate.set()
    assert await asyncio.wait_for(asyncio.gather(*slow), 30) == [True] * 20


@in_a_loop
async def test_one_thread_does_all_that_does_not_wait() -> None:
    desk = Desk(8)
    names = set()
    for _ in range(20):
        names.update(await asyncio.gather(*(desk.run(threading.get_ident) for _ in range(20))))
    # A second one may have stepped in on a busy machine; one each would be the usual pool.
    assert len(names) < 8


@in_a_loop
async def test_what_is_done_together_is_called_once_for_many() -> None:
    desk = Desk(2)
    gate, calls = threading.Event(), list[list[int]]()

    def together(items: Sequence[int]) -> list[int | Exception]:
        calls.append(list(items))
        return [ValueError("odd") if item % 2 else item * 10 for item in items]

    first = asyncio.create_task(desk.run(gate.wait, 60))
    tasks = [
        asyncio.create_task(desk.run(lambda number=number: Later(number, together, lambda found: found + 1)))
        for number in range(10)
    ]
    await asyncio.sleep(0)
    gate.set()
    await first
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[::2] == [1, 21, 41, 61, 81]
    assert all(isinstance(error, ValueError) for error in results[1::2])
    assert sorted(item for call in calls for item in call) == list(range(10))
    assert len(calls) < 10


@in_a_loop
async def test_a_group_that_fails_fails_for_each() -> None:
    def together(items: Sequence[int]) -> list[int]:
        raise OSError("no disk")

    desk = Desk(2)
    with pytest.raises(OSError, match="no disk"):
        await desk.run(lambda: Later(1, together, lambda found: found))
    assert await desk.run(abs, -3) == 3


@in_a_loop
async def test_whoever_has_gone_is_not_served() -> None:
    desk = Desk(1)
    gate, done = threading.Event(), list[int]()
    slow = asyncio.create_task(desk.run(gate.wait, 60))
    await asyncio.sleep(0.05)
    gone = asyncio.create_task(desk.run(done.append, 1))
    await asyncio.sleep(0.05)
    gone.cancel()
    await asyncio.sleep(0.05)
    gate.set()
    assert await slow and await desk.run(abs, -1) == 1
    assert done == []


@in_a_loop
async def test_prompt_work_is_done_by_the_loop_itself() -> None:
    desk = Desk(2)
    me = threading.get_ident()
    assert await asyncio.gather(*(desk.run_promptly(threading.get_ident) for _ in range(20))) == [me] * 20
    # Not where a network lies in between.
    assert await Desk(2, is_prompt=False).run_promptly(threading.get_ident) != me


@in_a_loop
async def test_after_a_stall_threads_do_it_until_they_find_the_disk_prompt() -> None:
    desk = Desk(4)
    me = threading.get_ident()
    await desk.run_promptly(time.sleep, 0.1)
    gate = threading.Event()
    waiting = [asyncio.create_task(desk.run_promptly(gate.wait, 60)) for _ in range(2)]
    # The loop lives, though the disk stands still.
    assert await asyncio.wait_for(desk.run_promptly(threading.get_ident), 30) != me
    gate.set()
    assert await asyncio.gather(*waiting) == [True, True]
    async with asyncio.timeout(30):
        while await desk.run_promptly(threading.get_ident) != me:
            await asyncio.sleep(0.05)


@in_a_loop
async def test_writes_that_do_not_get_durable_end_the_trust() -> None:
    desk = Desk(4)
    gate = threading.Event()

    def together(items: Sequence[int]) -> list[int]:
        gate.wait(60)
        return list(items)

    def begin() -> Later[int]:
        return Later(1, together, lambda found: found)

    stuck = asyncio.create_task(desk.run_promptly(begin))
    async with asyncio.timeout(30):
        while await desk.run_promptly(threading.get_ident) == threading.get_ident():
            await asyncio.sleep(0.05)
    gate.set()
    assert await stuck == 1


@in_a_loop
async def test_those_who_come_together_again_and_again_are_finished_together() -> None:
    desk = Desk(2)
    sizes: list[int] = []

    def together(items: Sequence[int]) -> list[int]:
        sizes.append(len(items))
        time.sleep(0.002)
        return list(items)

    async def client(number: int) -> None:
        for _ in range(20):
            assert await desk.run_promptly(lambda: Later(number, together, lambda found: found)) == number

    await asyncio.gather(*(client(number) for number in range(8)))
    assert sum(sizes) == 160 and len(sizes) < 100
    # One alone waits for nobody.
    sizes.clear()
    await client(1)
    assert sizes == [1] * 20
