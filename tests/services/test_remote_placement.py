"""Where nodes on other machines are: their real addresses and devices, and ports that nobody else has."""

from __future__ import annotations

from typing import Any

from trainshed.model.flavor import Flavor
from trainshed.services.remote_placement import choose_ports, place_nodes
from trainshed.services.runner_mirror import Claim

FLAVOR = Flavor("ascend.2", "ascend", 2, 8, 1024)


def claim(node: int, address: str, **more: Any) -> Claim:
    return Claim(node, f"{node:032x}", f"n{node + 1}", address, **more)


def test_devices_have_their_real_addresses_or_none() -> None:
    known = ((2, "10.1.0.2"), (3, "10.1.0.3"))
    first, second = place_nodes(
        [
            claim(0, "10.0.0.1", device_addresses=known),
            claim(1, "10.0.0.2", device_addresses=known[:1]),
        ],
        FLAVOR,
        20000,
        {"n1": (2, 3), "n2": (2, 3)},
    )
    assert (first.devices, first.device_addresses) == ((2, 3), ("10.1.0.2", "10.1.0.3"))
    assert (second.devices, second.device_addresses) == ((2, 3), ())
    assert (first.address, second.address) == ("10.0.0.1", "10.0.0.2")


def test_nodes_that_share_a_machine_get_addresses_on_its_loopback() -> None:
    for address in ("127.0.0.1", "10.0.0.5"):
        places = place_nodes([claim(0, address), claim(1, address)], FLAVOR, 20000, {})
        assert [place.address for place in places] == ["", ""]
    [alone] = place_nodes([claim(0, "10.0.0.5")], FLAVOR, 20000, {})
    assert alone.address == "10.0.0.5"


def test_ports_of_running_jobs_are_left_alone() -> None:
    claims = [claim(0, "10.0.0.1"), claim(1, "10.0.0.2", busy_ports=(20300,))]
    taken: set[int] = set()
    for _ in range(98):
        base = choose_ports("the same job", claims, taken)
        assert base not in taken and not base <= 20300 < base + 128
        taken.add(base)
