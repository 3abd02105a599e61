"""Reading rank tables of any form: what they say, what is wrong with them, and several made into one."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass
from typing import Any

from trainshed.model.errors import InvalidInput
from trainshed.model.rank_table import RankDevice, Server

__all__ = ["ReadTable", "check_table", "merge_tables", "read_table"]


@dataclass(frozen=True)
class ReadTable:
    """A rank table that was read: its form (A, B or C), its servers in the order of ranks, and the ranks as written."""

    form: str
    servers: tuple[Server, ...]
    # By server, and in the order of its devices; form B has none, its order is what counts.
    ranks: tuple[tuple[str, ...], ...] = ()
    status: str = ""
    counts: tuple[tuple[str, str, int], ...] = ()

    @property
    def size(self) -> int:
        """How many devices there are in all."""
        return sum(len(server.devices) for server in self.servers)


def read_table(text: str, where: str = "rank table") -> ReadTable:
    """Read a table of any form. Only what cannot be understood is refused here; `check_table` judges the rest."""
    try:
        data = json.loads(text)
    except ValueError as fault:
        raise InvalidInput(
            f"It is not JSON: {fault}.", hint="A rank table is a JSON file.", where=where
        ) from None
    try:
        if isinstance(data, dict) and "server_list" in data:
            return _read_c(data)
        if isinstance(data, dict) and data.get("group_list"):
            group = data["group_list"][0]
            has_ranks = any("rank_id" in item for item in group["instance_list"])
            return _read_a(data, group) if has_ranks else _read_b(data, group)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as fault:
        raise InvalidInput(
            f"It is not a whole rank table: {type(fault).__name__} at {fault}.",
            hint="`trainshed ranktable print` shows how one looks.",
            where=where,
        ) from None
    raise InvalidInput(
        "It has neither a server_list nor a group_list.",
        hint="`trainshed ranktable print` shows how a rank table looks.",
        where=where,
    )


def check_table(table: ReadTable) -> list[str]:
    """Everything that is wrong with a table, in words; empty when nothing is."""
    faults = [
        f"{name} is {written!r}, and there are {found}"
        for name, written, found in table.counts
        if written != str(found)
    ]
    if table.status != "completed":
        faults.append(f"status is {table.status!r}: readers wait until it is 'completed'")
    if not table.size:
        faults.append("it names no device")
    ranks = [rank for server in table.ranks for rank in server]
    expected = [str(number) for number in range(len(ranks))]
    if ranks and sorted(ranks) != sorted(expected):
        doubled = sorted({rank for rank in ranks if ranks.count(rank) > 1})
        faults.append(
            f"rank {', '.join(doubled)} is given to several devices"
            if doubled
            else f"ranks are not 0 to {len(ranks) - 1}"
        )
    elif ranks != expected:
        faults.append("ranks are not in the order of servers and devices")
    seen: dict[str, str] = {}
    servers: set[str] = set()
    for server in table.servers:
        if server.address in servers:
            faults.append(f"server {server.address} is listed twice")
        servers.add(server.address)
        if not _is_address(server.address):
            faults.append(f"server_id {server.address!r} is not an IP address")
        ids = [device.device_id for device in server.devices]
        if len(set(ids)) != len(ids):
            faults.append(f"server {server.address} lists a device twice")
        if len(ids) not in (1, 2, 4, 8, 16):
            faults.append(f"server {server.address} has {len(ids)} devices; 1, 2, 4, 8 or 16 work together")
        for device in server.devices:
            place = f"device {device.device_id} of {server.address}"
            if not _is_address(device.address):
                faults.append(f"{place} has no usable device_ip: {device.address!r}")
            elif device.address in seen:
                faults.append(f"{place} has the device_ip {device.address} of {seen[device.address]}")
            seen.setdefault(device.address, place)
    sizes = {len(server.devices) for server in table.servers}
    if len(sizes) > 1:
        faults.append("servers have different numbers of devices")
    return faults


def merge_tables(tables: list[ReadTable]) -> tuple[Server, ...]:
    """The servers of several tables as one job's, in the given order: ranks are counted anew."""
    servers = tuple(server for table in tables for server in table.servers)
    addresses = [server.address for server in servers]
    for address in addresses:
        if addresses.count(address) > 1:
            raise InvalidInput(
                f"Server {address} is in more than one table.",
                hint="Give the table of each server once.",
                where="rank table",
            )
    return servers


def _read_a(data: dict[str, Any], group: dict[str, Any]) -> ReadTable:
    devices: dict[str, list[RankDevice]] = {}
    ranks: dict[str, list[str]] = {}
    for item in group["instance_list"]:
        address = str(item["server_id"])
        for device in item["devices"]:
            devices.setdefault(address, []).append(_device(device))
            ranks.setdefault(address, []).append(str(item["rank_id"]))
    servers = tuple(Server(address, "", tuple(found)) for address, found in devices.items())
    total = sum(len(server.devices) for server in servers)
    return ReadTable(
        "A",
        servers,
        tuple(tuple(ranks[server.address]) for server in servers),
        str(data.get("status", "")),
        (
            ("device_num", str(group.get("device_num", "")), total),
            ("server_num", str(group.get("server_num", "")), len(servers)),
            ("instance_count", str(group.get("instance_count", "")), len(group["instance_list"])),
        ),
    )


def _read_b(data: dict[str, Any], group: dict[str, Any]) -> ReadTable:
    servers = tuple(
        Server(
            str(item["server_id"]),
            str(item.get("pod_name", "")),
            tuple(_device(device) for device in item["devices"]),
        )
        for item in group["instance_list"]
    )
    total = sum(len(server.devices) for server in servers)
    counts = (
        ("instance_count", str(group.get("instance_count", "")), len(servers)),
        ("device_count", str(group.get("device_count", "")), total),
    )
    return ReadTable("B", servers, (), str(data.get("status", "")), counts)


def _read_c(data: dict[str, Any]) -> ReadTable:
    servers = tuple(
        Server(str(item["server_id"]), "", tuple(_device(device) for device in item["device"]))
        for item in data["server_list"]
    )
    ranks = tuple(tuple(str(device["rank_id"]) for device in item["device"]) for item in data["server_list"])
    counts = (("server_count", str(data.get("server_count", "")), len(servers)),)
    return ReadTable("C", servers, ranks, str(data.get("status", "")), counts)


def _device(item: dict[str, Any]) -> RankDevice:
    return RankDevice(int(item["device_id"]), str(item.get("device_ip", "")))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
