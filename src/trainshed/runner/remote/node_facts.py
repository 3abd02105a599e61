"""What a machine finds out about itself before it takes part in a job."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trainshed.model.errors import HostUnfit
from trainshed.store.remote.http_connection import as_host

__all__ = [
    "address_in",
    "describe_machine",
    "device_addresses",
    "listening_ports",
    "machine_id",
    "node_name",
    "own_address",
    "own_addresses",
    "read_listening_ports",
    "visible_devices",
]

# Where schedulers tell which devices of the machine are the job's.
_DEVICE_VARIABLES = ("TRAINSHED_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "ASCEND_RT_VISIBLE_DEVICES")
_LISTEN = "0A"
# How the kernel is asked for sockets without those tables: NETLINK_SOCK_DIAG, and messages of it.
_SOCKETS, _BY_FAMILY, _ERROR, _DONE = 4, 20, 2, 3
_REQUEST_DUMP = 0x301
_HEAD_BYTES = 16
_PORTS = range(20000, 32768)


def describe_machine(url: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """The machine's name, the address at which its peers reach it, its devices and the ports that are taken."""
    return {
        "host": node_name(variables),
        "run": _run_of(variables),
        "address": address_in(variables.get("TRAINSHED_NODE_ADDRESSES", "")) or own_address(url),
        "devices": list(visible_devices(variables)),
        "device_addresses": device_addresses(),
        "machine": machine_id(),
        "busy_ports": [port for port in listening_ports() if port in _PORTS],
    }


def machine_id(root: Path = Path("/proc")) -> str:
    """What nodes that are one machine, with one network, have in common; empty where the kernel does not tell."""
    try:
        boot = (root / "sys/kernel/random/boot_id").read_text().strip()
        return re.sub(r"[^0-9a-f]", "", boot) + f"-{(root / 'self/ns/net').stat().st_ino}"
    except OSError:
        return ""


def node_name(variables: Mapping[str, str]) -> str:
    """The name that the scheduler gives to this machine, else its own."""
    name = variables.get("SLURMD_NODENAME") or socket.gethostname()
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)[:255] or "node"


def _run_of(variables: Mapping[str, str]) -> str:
    """Which start of the scheduler this is: its job's number, and how often that was started before."""
    number, again = (variables.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT"))
    if not number.isdecimal():
        return ""
    return f"{number}.{again}" if again.isdecimal() and int(again) else number


def device_addresses(root: Path = Path("/")) -> dict[int, str]:
    """The addresses of this machine's Ascend devices among each other, by index, where they have such."""
    try:
        if not any(name.startswith("davinci") for name in os.listdir(root / "dev")):
            return {}
    except OSError:
        return {}
    from trainshed.runner.inventory import find_ascend_devices

    return {device.index: device.address for device in find_ascend_devices(root) if device.address}


def address_in(network: str, root: Path = Path("/proc/net")) -> str:
    """This machine's address in a network; empty where none is named."""
    if not network:
        return ""
    from ipaddress import ip_address, ip_network

    wanted = ip_network(network)
    for address in own_addresses(root):
        if ip_address(address) in wanted:
            return address
    raise HostUnfit(
        f"This machine has no address in {network}, the network on which nodes of the pool meet.",
        hint="Correct `addresses` of the pool in the settings, or the machine's network.",
        code="no_address",
    )


def own_addresses(root: Path = Path("/proc/net")) -> list[str]:
    """All addresses of this machine, as the kernel tells them."""
    from ipaddress import ip_address

    found: list[str] = []
    try:
        # An address stands one line above what it is.
        lines = (root / "fib_trie").read_text().splitlines()
        found += [above.split()[-1] for above, line in pairwise(lines) if line.strip() == "/32 host LOCAL"]
    except OSError:
        pass
    try:
        for line in (root / "if_inet6").read_text().splitlines():
            found.append(str(ip_address(int(line.split()[0], 16).to_bytes(16, "big"))))
    except OSError:
        pass
    return list(dict.fromkeys(found))


def own_address(url: str) -> str:
    """The address that this machine has on the way to the platform. (No packet is sent.)"""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    for family, kind, protocol, _, target in socket.getaddrinfo(
        as_host(parts.hostname or ""), port, type=socket.SOCK_DGRAM
    ):
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.connect(target)
                return str(probe.getsockname()[0]).partition("%")[0]
            except OSError:
                continue
    return "127.0.0.1"


def visible_devices(variables: Mapping[str, str]) -> tuple[int, ...]:
    """The indices of the devices that the scheduler gave to this job; empty where it does not tell."""
    for name in _DEVICE_VARIABLES:
        words = [word for word in variables.get(name, "").split(",") if word]
        if words and all(word.isdecimal() for word in words):
            return tuple(int(word) for word in words)
    return ()


def listening_ports() -> list[int]:
    """The TCP ports of this machine on which somebody listens."""
    try:
        return sorted({port for family in (socket.AF_INET, socket.AF_INET6) for port in _ask_kernel(family)})
    except (OSError, AttributeError):
        return read_listening_ports()


def _ask_kernel(family: int) -> Iterator[int]:
    """The ports of one family: by one question, where tables would be gone through that hold all connections."""
    wanted = (
        bytes((family, socket.IPPROTO_TCP, 0, 0))
        + (1 << int(_LISTEN, 16)).to_bytes(4, sys.byteorder)
        + bytes(48)
    )
    head = (_HEAD_BYTES + len(wanted), 4), (_BY_FAMILY, 2), (_REQUEST_DUMP, 2), (1, 4), (0, 4)
    request = b"".join(number.to_bytes(size, sys.byteorder) for number, size in head) + wanted
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCKETS) as asked:
        asked.settimeout(5)
        asked.send(request)
        while True:
            data = asked.recv(64 << 10)
            while data:
                length, kind = (
                    int.from_bytes(data[at : at + size], sys.byteorder) for at, size in ((0, 4), (4, 2))
                )
                if kind == _DONE:
                    return
                if kind == _ERROR or length < _HEAD_BYTES:
                    raise OSError("the kernel does not tell which sockets there are")
                # Behind the family, the state and two counters.
                yield int.from_bytes(data[_HEAD_BYTES + 4 : _HEAD_BYTES + 6], "big")
                data = data[(length + 3) & ~3 :]


def read_listening_ports(root: Path = Path("/proc/net")) -> list[int]:
    """The same from the kernel's tables, as every kernel has them."""
    ports: set[int] = set()
    for name in ("tcp", "tcp6"):
        try:
            with (root / name).open() as file:
                file.readline()
                for line in file:
                    fields = line.split()
                    if len(fields) < 4 or fields[3] != _LISTEN:
                        # Those who listen come first. To list all other connections takes the kernel much longer.
                        break
                    ports.add(int(fields[1].rpartition(":")[2], 16))
        except OSError:
            continue
    return sorted(ports)
