"""Nodes of one job on one machine: one network, else nothing in common; together they start and end."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

WORLD = """
import json, os, pathlib, socket
name = socket.gethostname()
pathlib.Path(f"/tmp/{name}").touch()
found = {
    "name": name,
    "address": socket.gethostbyname(name),
    "others": [socket.gethostbyname(other) for other in ("node-0", "n0", "node-1", "n1")],
    "localhost": socket.gethostbyname("localhost"),
    "network": os.readlink("/proc/self/ns/net"),
    "files": os.listdir("/tmp"),
    "processes": len([entry for entry in os.listdir("/proc") if entry.isdigit()]),
    "interfaces": pathlib.Path("/proc/net/dev").read_text().count(":"),
}
server = socket.create_server((found["address"], 4000))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as low:
    try:
        low.bind((found["address"], 54))
        found["low"] = "bound"
    except PermissionError:
        found["low"] = "refused"
if name == "node-0":
    connection, peer = server.accept()
    found["caller"] = peer[0]
    connection.sendall(b"hello")
    connection.close()
else:
    import time
    deadline = time.monotonic() + 90
    while True:
        try:
            caller = socket.create_connection(("node-0", 4000), source_address=(found["address"], 0))
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    found["heard"] = caller.makefile().read()
print(json.dumps(found))
"""
SLEEP = "import time\nprint('begun', flush=True)\ntime.sleep(60)"


def start_nodes(host: Any, *scripts: str, **request: Any) -> list[Any]:
    return [
        host.start(script, run=f"node-{node}", node=node, nodes=len(scripts), **request)
        for node, script in enumerate(scripts)
    ]


def find_namespace(network: str) -> list[int]:
    """Every process that is in a network, or holds it open."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            for link in (entry / "ns" / "net", *list_descriptors(entry)):
                try:
                    if os.readlink(link) == network:
                        found.append(int(entry.name))
                        break
                except OSError:
                    continue
    return found


def list_descriptors(process: Path) -> list[Path]:
    try:
        return list((process / "fd").iterdir())
    except OSError:
        return []


def wait_until_gone(network: str) -> None:
    deadline = time.monotonic() + 90
    while left := find_namespace(network):
        assert time.monotonic() < deadline, f"still in the job's network: {left}"
        time.sleep(0.05)


@pytest.mark.parametrize("network", ["none", "platform"])
def test_nodes_share_a_network_and_nothing_else(host: Any, network: str) -> None:
    nodes = start_nodes(host, WORLD, WORLD, network=network)
    for node in nodes:
        assert node.finish()["message"] == ""
    first, second = (json.loads(node.log()) for node in nodes)
    assert (first["name"], first["address"]) == ("node-0", "127.0.0.2")
    assert (second["name"], second["address"]) == ("node-1", "127.0.0.3")
    for found in (first, second):
        assert found["others"] == ["127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3"]
        assert found["localhost"] == "127.0.0.1"
        assert (found["files"], found["processes"], found["interfaces"]) == ([found["name"]], 2, 1)
        assert found["low"] == "refused"
    assert first["network"] == second["network"] != os.readlink("/proc/self/ns/net")
    assert (first["caller"], second["heard"]) == ("127.0.0.3", "hello")
    wait_until_gone(first["network"])


TALK = """
import os, socket, sys, time
door = socket.create_connection(("127.0.0.1", {port}))
print(os.readlink("/proc/self/ns/net"), flush=True)
for _ in range({times}):
    door.sendall(b"?")
    assert door.recv(1) == b"!"
    socket.gethostbyname("bucket.localhost")
    time.sleep(0.05)
print("served", flush=True)
"""


def test_the_doors_to_the_platform_outlive_the_node_that_ends_first(host: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve(connection: socket.socket) -> None:
            with connection:
                while connection.recv(1):
                    connection.sendall(b"!")

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        port = server.getsockname()[1]
        scripts = [TALK.format(port=port, times=times) for times in (1, 60)]
        request = {"network": "platform", "forwards": [(port, "127.0.0.1", port)]}
        nodes = start_nodes(host, *scripts, **request)
        nodes[0].finish()
        assert "served" in nodes[0].log()
        assert "served" not in nodes[1].log()
        nodes[1].finish()
        assert "served" in nodes[1].log()
        wait_until_gone(nodes[1].log().split()[0])
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_runner_ends_the_other_nodes_at_once(host: Any, victim: int) -> None:
    script = "import os\nprint(os.readlink('/proc/self/ns/net'))\n" + SLEEP
    nodes = start_nodes(host, script, script)
    for node in nodes:
        node.wait_for("begun")
    nodes[victim].process.send_signal(signal.SIGKILL)
    answer = nodes[1 - victim].finish()
    assert answer["ending"]["message"] == f"Node {victim} of this job was lost."
    assert answer["ending"]["outcome"] == "stopped"
    nodes[victim].process.communicate()
    wait_until_gone(nodes[1].log().split()[0])


def test_a_failing_rank_ends_the_other_nodes_and_a_good_end_does_not(host: Any) -> None:
    fail_after_the_good_end = (
        "import socket, time\n"
        "socket.create_server(('127.0.0.3', 4000)).accept()[0].recv(1)\n"
        "time.sleep(3)\n"
        "raise SystemExit(3)"
    )
    end_well = (
        "import socket, time\n"
        "caller = socket.socket()\n"
        "while caller.connect_ex(('127.0.0.3', 4000)):\n"
        "    time.sleep(0.02)"
    )
    nodes = start_nodes(host, SLEEP, fail_after_the_good_end, end_well)
    assert nodes[2].finish()["exits"]["0"]["exit_code"] == 0
    assert nodes[1].finish()["exits"]["0"]["exit_code"] == 3
    assert nodes[0].finish()["ending"]["message"] == "Node 1 of this job has ended."


def test_no_node_begins_before_all_are_ready(host: Any) -> None:
    first = host.start("print('begun', flush=True)", run="node-0", node=0, nodes=2)
    time.sleep(1)
    assert first.log() == ""
    second = host.start("print('begun', flush=True)", run="node-1", node=1, nodes=2)
    for node in (first, second):
        node.finish()
        assert node.log() == "begun\n"


def test_a_node_that_comes_after_the_end_of_the_gang_does_not_wait(host: Any) -> None:
    first = host.start(SLEEP, run="node-0", node=0, nodes=2)
    deadline = time.monotonic() + 90
    while not (first.folder / "gang.sock").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    first.process.kill()
    first.process.communicate()
    answer = host.start(SLEEP, run="node-1", node=1, nodes=2, network="open").finish()
    assert answer["ending"]["message"] == "Node 0 of this job was lost."
