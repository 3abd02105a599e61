"""Numbers of devices, nodes and processes that cannot be."""

from __future__ import annotations

import pytest

from trainshed.model.errors import InvalidInput
from trainshed.model.flavor import Flavor
from trainshed.model.world_shape import check_device_count, check_world_shape


def flavor(kind: str, devices: int) -> Flavor:
    return Flavor(f"{kind}.{devices}", kind, devices, 0, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["ascend.3", "ascend.0", "ascend.5", "ascend.6", "ascend.7", "ascend.12"])
def test_an_ascend_node_does_not_give_any_number_of_devices(name: str) -> None:
    with pytest.raises(InvalidInput) as fault:
        check_device_count(name)
    assert fault.value.code == "device_count" and fault.value.where == "flavor"
    assert "1, 2, 4, 8 or 16" in fault.value.message


@pytest.mark.parametrize("name", ["ascend.1", "ascend.2", "ascend.4", "ascend.8", "nvidia.3", "cpu.3", "x"])
def test_other_flavors_are_left_to_the_pool(name: str) -> None:
    check_device_count(name)


@pytest.mark.parametrize("dialect", ["modelarts-v1", "modelarts-v2", "xihe"])
def test_several_ascend_nodes_of_modelarts_are_whole_servers(dialect: str) -> None:
    check_world_shape(flavor("ascend", 8), 2, 0, dialect)
    check_world_shape(flavor("ascend", 4), 1, 0, dialect)
    check_world_shape(flavor("nvidia", 4), 2, 0, dialect)
    with pytest.raises(InvalidInput, match="8 devices each, not 4"):
        check_world_shape(flavor("ascend", 4), 2, 0, dialect)


def test_elsewhere_several_small_nodes_are_allowed() -> None:
    check_world_shape(flavor("ascend", 2), 2, 0, "native")


def test_more_processes_than_devices_cannot_be() -> None:
    check_world_shape(flavor("nvidia", 2), 1, 2, "native")
    check_world_shape(flavor("cpu", 0), 1, 16, "native")
    with pytest.raises(InvalidInput) as fault:
        check_world_shape(flavor("nvidia", 2), 1, 3, "native")
    assert fault.value.code == "rank_count" and fault.value.where == "processes"
