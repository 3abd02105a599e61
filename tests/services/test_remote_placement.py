"""Where nodes on other machines are: their real addresses and devices, and ports that nobody else has."""

from __future__ import annotations

from typing import Any

import pytest

from trainshed.model.errors import InvalidInput
from trainshed.model.flavor import Flavor
from trainshed.services.remote_placement import (
    choose_ports,
    describe_places,
    guess_places,
    interconnect_variables,
    network_of,
    place_nodes,
)
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


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (
            (("10.0.0.1", "a"), ("10.0.0.1", "a"), ("10.0.0.2", "b")),
            "n1 and n2 are one machine (10.0.0.1), and other nodes",
        ),
        ((("10.0.0.1", ""), ("10.0.0.1", ""), ("10.0.0.2", "")), "n1 and n2 are one machine"),
        ((("127.0.1.1", "a"), ("10.0.0.2", "b")), "n1 has the address 127.0.1.1"),
        ((("127.0.0.1", "a"), ("127.0.0.1", "b")), "n1 has the address 127.0.0.1"),
        ((("10.0.0.2", "a"), ("::1", "b")), "n2 has the address ::1"),
        ((("10.0.0.1", "a"), ("10.0.0.1", "b")), "n1 and n2 are different machines with one address"),
    ],
)
def test_nodes_that_could_not_meet_are_refused(nodes: Any, words: str) -> None:
    claims = [claim(index, address, machine=machine) for index, (address, machine) in enumerate(nodes)]
    with pytest.raises(InvalidInput) as caught:
        place_nodes(claims, FLAVOR, 20000, {})
    assert words in caught.value.message and caught.value.hint and caught.value.code == "addresses"


def test_one_machine_is_known_whatever_addresses_its_nodes_have() -> None:
    claims = [claim(0, "10.0.0.1", machine="a"), claim(1, "10.0.1.1", machine="a")]
    assert [place.address for place in place_nodes(claims, FLAVOR, 20000, {})] == ["", ""]
    [alone] = place_nodes([claim(0, "127.0.0.1", machine="a")], FLAVOR, 20000, {})
    assert alone.address == ""


def test_ports_of_running_jobs_are_left_alone() -> None:
    claims = [claim(0, "10.0.0.1"), claim(1, "10.0.0.2", busy_ports=(20300,))]
    taken: set[int] = set()
    for _ in range(60):
        base = choose_ports("the same job", claims, taken)
        assert all(abs(base - other) >= 128 for other in taken) and not base <= 20300 < base + 128
        taken.add(base)
    # Where there is no block left, ports are not those of another job to the last one.
    for _ in range(200):
        base = choose_ports("the same job", claims, taken)
        assert base not in taken
        taken.add(base)


def test_jobs_that_know_nothing_of_each_other_hardly_have_ports_in_common() -> None:
    claims = [claim(0, "10.0.0.1"), claim(1, "10.0.0.2")]
    bases = {choose_ports(f"job {number}", claims) for number in range(300)}
    assert len(bases) > 240 and all(20000 <= base < 32768 - 128 for base in bases)


def test_a_story_tells_where_the_nodes_are() -> None:
    places = place_nodes(
        [claim(0, "10.0.0.1"), claim(1, "10.0.0.2")], FLAVOR, 20128, {"n1": (2, 3), "n2": (0, 1)}
    )
    assert describe_places(places) == (
        "The nodes are n1 (10.0.0.1), devices 2,3; n2 (10.0.0.2), devices 0,1; "
        "on the machines' own network, ports from 20128 on."
    )
    [alone] = place_nodes([claim(0, "10.0.0.1")], Flavor("cpu.1", "cpu", 0, 1, 0), 0, {})
    assert describe_places([alone]) == "The nodes are n1 (10.0.0.1)."


def test_several_machines_need_their_own_network_and_one_does_not() -> None:
    assert network_of("platform", 2) == "open" and network_of("none", 1) == "none"
    first, second = guess_places(FLAVOR, 2, "platform")
    assert (first.address, second.address, first.ports) == ("address-of-node-0", "address-of-node-1", 20000)
    [alone] = guess_places(FLAVOR, 1, "platform")
    assert (alone.address, alone.ports) == ("", 0)


def test_openmpi_stays_on_the_network_that_the_pool_names() -> None:
    assert interconnect_variables("") == {}
    found = interconnect_variables("10.1.0.0/16")
    assert found["OMPI_MCA_btl_tcp_if_include"] == "10.1.0.0/16" and len(found) == 3
