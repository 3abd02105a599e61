"""Where the nodes of an attempt on other machines really are: addresses, devices and ports, as they were claimed."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence

from trainshed.dialects.world import PORT_BLOCK
from trainshed.model.flavor import Flavor
from trainshed.model.queue import Placement
from trainshed.services.runner_mirror import Claim

__all__ = [
    "choose_ports",
    "describe_places",
    "guess_places",
    "interconnect_variables",
    "network_of",
    "place_nodes",
]

# Blocks of ports for jobs on the machines' own network: below those that the kernel hands out by itself.
_FIRST_PORT, _LAST_PORT = 20000, 32768


def network_of(network: str, nodes: int) -> str:
    """The network that a job really has on other machines: several of them reach each other over their own one."""
    return "open" if nodes > 1 else network


def interconnect_variables(addresses: str) -> dict[str, str]:
    """What keeps OpenMPI on the network that the pool names for its nodes: left alone, it tries all that there are."""
    if not addresses:
        return {}
    names = ("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include", "PRTE_MCA_oob_tcp_if_include")
    return dict.fromkeys(names, addresses)


def guess_places(flavor: Flavor, nodes: int, network: str) -> tuple[Placement, ...]:
    """Places before there are any, to show a plan: what only the machines can tell has a name in its stead."""
    return tuple(
        Placement(
            f"node-{index}",
            tuple(range(flavor.devices)),
            flavor.cpus,
            flavor.memory_mb,
            address=f"address-of-node-{index}" if nodes > 1 else "",
            ports=_FIRST_PORT if network_of(network, nodes) == "open" else 0,
        )
        for index in range(nodes)
    )


def describe_places(places: Sequence[Placement]) -> str:
    """Where a job's nodes are, in words."""
    words = []
    for place in places:
        devices = f", devices {','.join(map(str, place.devices))}" if place.devices else ""
        words.append(f"{place.node}{f' ({place.address})' if place.address else ''}{devices}")
    shared = (
        f"; on the machines' own network, ports from {places[0].ports} on"
        if places[0].ports and len(places) > 1
        else ""
    )
    return f"The nodes are {'; '.join(words)}{shared}."


def place_nodes(
    claims: Sequence[Claim], flavor: Flavor, ports: int, given: Mapping[str, tuple[int, ...]]
) -> tuple[Placement, ...]:
    """The nodes' places. `given` are the indices of their devices by machine, where the controller tells them."""
    # Nodes that all are on one machine get an address each on its loopback.
    is_one_machine = len(claims) > 1 and len({claim.address for claim in claims}) == 1
    return tuple(
        _place(claim, flavor, ports, given.get(claim.host, ()), is_one_machine=is_one_machine)
        for claim in claims
    )


def _place(
    claim: Claim, flavor: Flavor, ports: int, given: tuple[int, ...], *, is_one_machine: bool = False
) -> Placement:
    # What the controller says, then what the machine itself was told; else the first ones.
    told = next((found for found in (given, claim.devices) if len(found) >= flavor.devices), ())
    devices = told[: flavor.devices] or tuple(range(flavor.devices))
    address = "" if is_one_machine or claim.address.startswith("127.") else claim.address
    known = dict(claim.device_addresses)
    return Placement(
        claim.host,
        devices,
        flavor.cpus,
        flavor.memory_mb,
        address=address,
        # All of them or none: a table that mixes real and invented ones would lead nowhere.
        device_addresses=tuple(known[index] for index in devices) if known.keys() >= set(devices) else (),
        ports=ports,
    )


def choose_ports(job_id: str, claims: Sequence[Claim], taken: Collection[int] = ()) -> int:
    """The first port of a block that is free on all machines; another one for nearly every job."""
    blocks = [
        base for base in range(_FIRST_PORT, _LAST_PORT - PORT_BLOCK, PORT_BLOCK) if base not in taken
    ] or [_FIRST_PORT]
    busy = {port for claim in claims for port in claim.busy_ports}
    start = zlib.crc32(job_id.encode()) % len(blocks)
    ordered = blocks[start:] + blocks[:start]
    return next((base for base in ordered if not busy & set(range(base, base + PORT_BLOCK))), ordered[0])
