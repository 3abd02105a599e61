"""What a pool of other machines cannot give is refused at submit; flavors are told pool by pool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from trainshed.db.engine import begin
from trainshed.db.nodes import replace_nodes
from trainshed.model.errors import NotFound, TrainshedError
from trainshed.model.flavor import Device, Node
from trainshed.model.home import Home
from trainshed.model.job_spec import JobSpec
from trainshed.model.pools import Pool
from trainshed.model.settings import Settings
from trainshed.services.catalog import list_flavors, list_nodes
from trainshed.services.identity import Caller, authenticate_token
from trainshed.services.platform import Platform, open_platform
from trainshed.services.pool_checks import check_pool
from trainshed.services.setup import first_start

LAB = Pool("lab", "slurm")
SHARED = Pool("lab", "slurm", shared_folder="/shared")


def spec(**fields: Any) -> JobSpec:
    return JobSpec.model_validate({"boot": "train.py", "code": "obs://code/x/", **fields})


@pytest.mark.parametrize(
    ("fields", "pool", "open_network", "code"),
    [
        ({"nodes": 2, "network": "none"}, LAB, True, "network_needed"),
        ({"nodes": 2}, LAB, False, "open_network_forbidden"),
        ({"dialect": "apulis"}, LAB, True, "no_shared_folder"),
    ],
)
def test_what_the_machines_of_a_pool_cannot_give_is_refused(
    fields: dict[str, Any], pool: Pool, open_network: bool, code: str
) -> None:
    with pytest.raises(TrainshedError) as fault:
        check_pool(spec(**fields), pool, open_network=open_network)
    assert fault.value.code == code and fault.value.hint
    check_pool(spec(**fields), Pool("local"), open_network=open_network)


def test_what_they_can_give_is_not() -> None:
    check_pool(spec(nodes=2), LAB, open_network=True)
    check_pool(spec(network="none"), LAB, open_network=False)
    check_pool(spec(dialect="apulis", nodes=2), SHARED, open_network=True)


@pytest.fixture
def platform(home: Home) -> Iterator[Platform]:
    pools = (Pool("lab", "slurm"), Pool("big", "slurm"), Pool("empty", "slurm"))
    platform = open_platform(home, Settings(pools=pools))
    devices = tuple(Device("ascend", index) for index in range(8))
    with begin(platform.engine) as connection:
        replace_nodes(connection, "local", [Node("here", "local", 2, 8192)])
        nodes = [
            Node("n1", "lab", 8, 16384, devices[:2], engine="slurm"),
            Node("n1", "big", 64, 1 << 18, devices, engine="slurm"),
        ]
        replace_nodes(connection, "slurm", nodes)
    yield platform
    platform.close()


@pytest.fixture
def admin(platform: Platform) -> Caller:
    token = first_start(platform)
    assert token is not None
    return authenticate_token(platform, token.token)


def test_one_name_means_what_it_is_in_each_pool(platform: Platform, admin: Caller) -> None:
    found = {(view.pool, view.name): view for view in list_flavors(platform, admin)}
    assert next(iter(found))[0] == "local", "jobs that name no pool run there"
    assert (found["lab", "ascend.2"].cpus, found["big", "ascend.2"].cpus) == (8, 16)
    assert ("lab", "ascend.8") not in found and ("big", "ascend.8") in found
    assert not any(pool == "empty" for pool, _ in found)
    assert {view.pool for view in list_flavors(platform, admin, "big")} == {"big"}
    assert [node.pool for node in list_nodes(platform, admin, "lab")] == ["lab"]
    assert len(list_nodes(platform, admin)) == 3
    with pytest.raises(NotFound):
        list_flavors(platform, admin, "bug")
