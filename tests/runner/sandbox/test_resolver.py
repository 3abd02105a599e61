"""Names inside a job."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

import pytest

from trainshed.runner.sandbox.resolver import answer

LOOKUP = """
import json, socket, time
found = {}
for name in ("localhost", "bucket.localhost", "a.b-c.localhost", "example.com", "localhost.example.com"):
    try:
        found[name] = sorted({item[4][0] for item in socket.getaddrinfo(name, 80, socket.AF_INET)})
    except socket.gaierror as error:
        found[name] = error.errno == socket.EAI_NONAME
# Garbage must not end it.
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    for data in (b"", b"x", b"\\xff" * 600, b"\\0" * 12):
        sender.sendto(data, ("127.0.0.1", 53))
found["afterwards"] = socket.gethostbyname("again.localhost")
print(json.dumps(found))
"""


@pytest.mark.parametrize("network", ["none", "platform"])
def test_a_job_resolves_names_below_localhost(host: Any, network: str) -> None:
    result, log = host.run(LOOKUP, network=network)
    assert json.loads(log) == {
        "localhost": ["127.0.0.1"],
        "bucket.localhost": ["127.0.0.1"],
        "a.b-c.localhost": ["127.0.0.1"],
        "example.com": True,
        "localhost.example.com": True,
        "afterwards": "127.0.0.1",
    }
    assert result


def ask(name: str, kind: int = 1) -> bytes:
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return struct.pack(">6H", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)


def test_questions_are_answered() -> None:
    assert answer(ask("Data.LOCALHOST")).endswith(socket.inet_aton("127.0.0.1"))
    empty, unknown = answer(ask("data.localhost", kind=28)), answer(ask("data.example"))
    assert struct.unpack(">6H", empty[:12])[1] & 15 == 0 and struct.unpack(">6H", empty[:12])[3] == 0
    assert struct.unpack(">6H", unknown[:12])[1] & 15 == 3


@pytest.mark.parametrize("cut", range(0, 32, 3))
def test_half_a_question_is_no_question(cut: int) -> None:
    question = ask("data.localhost")
    told = answer(question[:cut])
    assert told == b"" or struct.unpack(">6H", told[:12])[1] & 15 == 1
    assert answer(b"\xc0" * 40)[3] & 15 == 1
