"""Rank tables: the files by which Ascend processes find one another, in the three forms that are in use.

* `A` (lab): one instance per device, with its rank; MindSpore 0.3 and Apulis.
* `B` (v0, jobstart_hccl.json): one instance per server, ranks by order; written by the cloud's scheduler.
* `C` (v1, server_list): today's form.

All numbers are strings in all of them, as the readers expect.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

__all__ = ["RankDevice", "Server", "invent_device_address", "render_a", "render_b", "render_c"]


@dataclass(frozen=True)
class RankDevice:
    """One device: its index on its server, and its address on the parameter plane."""

    device_id: int
    address: str


@dataclass(frozen=True)
class Server:
    """One server of the job, in the order of ranks."""

    address: str
    pod_name: str
    devices: tuple[RankDevice, ...]


def render_a(servers: tuple[Server, ...], group_name: str = "") -> str:
    """Form A: one instance per device."""
    instances: list[dict[str, Any]] = []
    for server in servers:
        for device in server.devices:
            instances.append(
                {
                    "devices": [{"device_id": str(device.device_id), "device_ip": device.address}],
                    "rank_id": str(len(instances)),
                    "server_id": server.address,
                }
            )
    interfaces = max((len(server.devices) for server in servers), default=0)
    return _dump(
        {
            "board_id": "0x0020",
            "chip_info": "910",
            "deploy_mode": "lab",
            "group_count": "1",
            "group_list": [
                {
                    "device_num": str(len(instances)),
                    "server_num": str(len(servers)),
                    "group_name": group_name,
                    "instance_count": str(len(instances)),
                    "instance_list": instances,
                }
            ],
            "para_plane_nic_location": "device",
            "para_plane_nic_name": [f"eth{number}" for number in range(interfaces)],
            "para_plane_nic_num": str(interfaces),
            "status": "completed",
        }
    )


def render_b(servers: tuple[Server, ...], group_name: str) -> str:
    """Form B: one instance per server, without ranks."""
    return _dump(
        {
            "status": "completed",
            "group_count": "1",
            "group_list": [
                {
                    "group_name": group_name,
                    "device_count": str(sum(len(server.devices) for server in servers)),
                    "instance_count": str(len(servers)),
                    "instance_list": [
                        {
                            "pod_name": server.pod_name,
                            "server_id": server.address,
                            "devices": [
                                {"device_id": str(device.device_id), "device_ip": device.address}
                                for device in server.devices
                            ],
                        }
                        for server in servers
                    ],
                }
            ],
        }
    )


def render_c(servers: tuple[Server, ...]) -> str:
    """Form C: a list of servers whose devices carry their ranks."""
    rank = 0
    listed = []
    for server in servers:
        devices = []
        for device in server.devices:
            devices.append(
                {
                    "device_id": str(device.device_id),
                    "device_ip": device.address,
                    "rank_id": str(rank),
                }
            )
            rank += 1
        listed.append({"server_id": server.address, "device": devices, "host_nic_ip": "reserve"})
    return _dump(
        {"version": "1.0", "server_count": str(len(servers)), "server_list": listed, "status": "completed"}
    )


def invent_device_address(node: int, slot: int) -> str:
    """An address for a device that has none, always the same for the same place: four planes, as on Ascend servers."""
    host = node * 4 + slot // 4
    return f"192.{168 + host // 254}.{10 * (slot % 4 + 1)}.{host % 254 + 1}"


def _dump(table: dict[str, Any]) -> str:
    return json.dumps(table, indent=1) + "\n"
