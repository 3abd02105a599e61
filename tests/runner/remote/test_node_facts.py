"""What a machine tells of itself."""

from __future__ import annotations

import socket
from pathlib import Path

from trainshed.runner.remote.node_facts import listening_ports, own_address, read_listening_ports


def test_ports_on_which_somebody_listens(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        for found in (listening_ports(), read_listening_ports()):
            assert listener.getsockname()[1] in found and client.getsockname()[1] not in found
    line = "   0: 0100007F:{port} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 0 0 1 1\n"
    lines = [
        line.format(port=port, state=state)
        for port, state in (("1F90", "0A"), ("4E20", "0A"), ("4E21", "06"))
    ]
    (tmp_path / "tcp").write_text("".join(["  sl  local_address rem_address   st\n", *lines]))
    assert read_listening_ports(tmp_path) == [8080, 20000]
    assert read_listening_ports(tmp_path / "none") == []


def test_the_address_on_the_way_to_the_platform() -> None:
    assert own_address("http://127.0.0.1:7480") == "127.0.0.1"
    assert own_address("https://localhost") in ("127.0.0.1", "::1")
