"""What is said before a rehearsal that is too large for its machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainshed.model.errors import InvalidInput
from trainshed.model.flavor import Node
from trainshed.model.rehearsal_load import check_load, warn_of_load

LAPTOP = Node("laptop", "local", 2, 8 * 1024)


def test_a_small_rehearsal_starts_without_a_word() -> None:
    assert warn_of_load("mindspore", 8, 1, [LAPTOP]) == []
    assert warn_of_load("numpy", 8, 2, [LAPTOP]) == []
    assert warn_of_load("numpy", 8, 2, []) == []


def test_too_little_memory_is_said_with_numbers() -> None:
    (warning,) = warn_of_load("mindspore-2.10", 8, 2, [LAPTOP])
    assert "16 processes" in warning and "10.9 GiB" in warning and "8.0 GiB" in warning
    assert warn_of_load("mindspore-2.10", 8, 2, [replace(LAPTOP, memory_mb=24 * 1024)]) == []


def test_too_many_processes_are_said() -> None:
    (warning,) = warn_of_load("numpy", 8, 4, [LAPTOP])
    assert "32 processes on 2 cores" in warning


def test_what_no_machine_could_start_is_refused() -> None:
    check_load(8, 16, [LAPTOP])
    with pytest.raises(InvalidInput, match=r"1024 x 8 is 8192 processes; .* carries 256") as found:
        check_load(8, 1024, [LAPTOP])
    assert found.value.where == "nodes" and found.value.hint
