"""Where the nodes of an attempt on other machines really are: addresses, devices and ports, as they were claimed."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from ipaddress import ip_address

from trainshed.dialects.world import PORT_BLOCK
from trainshed.model.errors import InvalidInput
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
_FIRST_PORT, _LAST_PORT, _PORT_STEP = 20000, 32768, 8


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
    is_one_machine = len(claims) > 1 and len({_machine_of(claim) for claim in claims}) == 1
    if not is_one_machine:
        _require_addresses(claims)
    return tuple(
        _place(claim, flavor, ports, given.get(claim.host, ()), is_one_machine=is_one_machine)
        for claim in claims
    )


def _require_addresses(claims: Sequence[Claim]) -> None:
    """Refuse nodes that could not find each other: every one needs an address that the others reach, and no other has."""
    by_machine: dict[str, list[Claim]] = {}
    by_address: dict[str, list[Claim]] = {}
    for claim in claims:
        by_machine.setdefault(_machine_of(claim), []).append(claim)
        by_address.setdefault(claim.address, []).append(claim)
    shared = next((group for group in by_machine.values() if len(group) > 1), None)
    if shared is not None:
        raise InvalidInput(
            f"{_names(shared)} are one machine ({shared[0].address}), and other nodes of the job are elsewhere: "
            "the nodes of a job are either all on one machine, or each on its own.",
            hint="Ask for fewer and larger nodes, or leave all but one of them out with --exclude in the pool's `options`.",
            code="addresses",
        )
    lonely = next((claim for claim in claims if ip_address(claim.address).is_loopback), None)
    if lonely is not None and len(claims) > 1:
        raise InvalidInput(
            f"{lonely.host} has the address {lonely.address} on its way to the platform: other machines cannot reach it.",
            hint="Let `addresses` of the pool name the network of its machines (10.1.0.0/16), or public_url an address "
            "that is no machine's own.",
            code="addresses",
        )
    doubled = next((group for group in by_address.values() if len(group) > 1), None)
    if doubled is not None:
        raise InvalidInput(
            f"{_names(doubled)} are different machines with one address ({doubled[0].address}).",
            hint="Let `addresses` of the pool name a network in which each machine has an address of its own.",
            code="addresses",
        )


def _machine_of(claim: Claim) -> str:
    return claim.machine or claim.address


def _names(claims: Sequence[Claim]) -> str:
    *first, last = [claim.host for claim in claims]
    return f"{', '.join(first)} and {last}"


def _place(
    claim: Claim, flavor: Flavor, ports: int, given: tuple[int, ...], *, is_one_machine: bool = False
) -> Placement:
    # What the controller says, then what the machine itself was told; else the first ones.
    told = next((found for found in (given, claim.devices) if len(found) >= flavor.devices), ())
    devices = told[: flavor.devices] or tuple(range(flavor.devices))
    address = "" if is_one_machine or ip_address(claim.address).is_loopback else claim.address
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
    """The first port of a block that is free on all machines; another one for nearly every job.

    Blocks begin anywhere and not at their own multiples: of jobs of two platforms that begin on one machine at the same
    moment, and cannot know of each other, hardly any two get ports in common. (A job uses few of its block.)
    """
    starts = range(_FIRST_PORT, _LAST_PORT - PORT_BLOCK, _PORT_STEP)
    near = range(_PORT_STEP - PORT_BLOCK, PORT_BLOCK, _PORT_STEP)
    covered = {base + step for base in taken for step in near}
    # More jobs than blocks are hardly all on the same machines.
    blocks = [base for base in starts if base not in covered]
    blocks = blocks or [base for base in starts if base not in taken] or list(starts)
    busy = {port for claim in claims for port in claim.busy_ports}
    first = zlib.crc32(job_id.encode()) % len(blocks)
    ordered = blocks[first:] + blocks[:first]
    return next((base for base in ordered if busy.isdisjoint(range(base, base + PORT_BLOCK))), ordered[0])
