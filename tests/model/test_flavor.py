"""The flavors that machines offer."""

from __future__ import annotations

import pytest

from trainshed.model.flavor import Node, parse_rehearsal, preset_flavors
from trainshed.model.world_shape import check_device_count


def offered(*devices: str) -> list[str]:
    nodes = [Node(f"n{n}", "local", 4, 8192, parse_rehearsal(text)) for n, text in enumerate(devices)]
    return [flavor.name for flavor in preset_flavors(nodes) if flavor.kind != "cpu"]


@pytest.mark.parametrize("count", [*range(1, 18), 24, 32])
def test_every_ascend_flavor_that_is_offered_is_one_that_a_job_may_ask_for(count: int) -> None:
    names = offered(f"ascend:{count}")
    assert names
    for name in names:
        check_device_count(name)


def test_an_odd_number_of_devices_is_offered_in_part_or_whole() -> None:
    assert offered("ascend:3") == ["ascend.1", "ascend.2"]
    assert offered("nvidia:3") == ["nvidia.1", "nvidia.2", "nvidia.3"]


def test_the_largest_machine_says_how_many() -> None:
    assert offered("ascend:2", "ascend:8") == ["ascend.1", "ascend.2", "ascend.4", "ascend.8"]
