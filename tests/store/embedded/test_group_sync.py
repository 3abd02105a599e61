"""Files that are made durable in one go: each with its own outcome, whatever the kernel offers."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from trainshed.store.embedded import group_sync
from trainshed.store.embedded.group_sync import sync_together


@pytest.fixture(params=["together", "one by one"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the kernel's calls, and without them."""
    if request.param == "one by one":
        monkeypatch.setattr(group_sync, "_is_missing", True)
    return str(request.param)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[int]]:
    """Files with something in them, and the folder they lie in."""
    opened = []
    for number in range(300):
        opened.append(os.open(tmp_path / str(number), os.O_WRONLY | os.O_CREAT))
        os.write(opened[-1], b"x" * number)
    opened.append(os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY))
    yield opened
    for file in opened:
        os.close(file)


def test_the_kernel_of_this_machine_does_it(files: list[int]) -> None:
    assert sync_together(files[:2]) == [None, None]
    assert group_sync._idle, "its queue waits for the next ones"


def test_many_files_and_a_folder(files: list[int], way: str) -> None:
    assert sync_together(files) == [None] * 301
    assert sync_together([]) == []
    assert sync_together(files[:1]) == [None]


def test_what_is_to_be_done_meanwhile_is_done_once(files: list[int], way: str) -> None:
    done: list[int] = []
    for count in (0, 1, 2, 301):
        assert sync_together(files[:count], partial(done.append, count)) == [None] * count
    assert done == [0, 1, 2, 301]


def test_one_that_cannot_be_synced_does_not_hide_the_others(files: list[int], way: str) -> None:
    reader, writer = os.pipe()
    try:
        outcomes = sync_together([files[0], 99_999, files[1], writer, files[2]])
    finally:
        os.close(reader)
        os.close(writer)
    codes = [outcome.errno if outcome else 0 for outcome in outcomes]
    assert codes == [0, errno.EBADF, 0, errno.EINVAL, 0]


def test_several_threads_at_once_get_their_own_outcomes(files: list[int]) -> None:
    def sync(number: int) -> list[int]:
        wanted = [*files[number : number + 20], 99_000 + number, *files[number + 20 : number + 40]]
        return [outcome.errno or 0 if outcome else 0 for outcome in sync_together(wanted)]

    with ThreadPoolExecutor(8) as pool:
        for codes in pool.map(sync, range(64)):
            assert codes == [0] * 20 + [errno.EBADF] + [0] * 20


def test_a_forked_process_makes_a_queue_of_its_own(files: list[int]) -> None:
    assert sync_together(files[:3]) == [None] * 3
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if sync_together(files[:3]) == [None] * 3 and len(group_sync._idle) == 1 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert sync_together(files[:3]) == [None] * 3
