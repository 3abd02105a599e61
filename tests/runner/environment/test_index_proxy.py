from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.runner.environment.index import PackageIndex
from trainshed.runner.environment.index_proxy import IndexProxy, is_internal


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"path {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def index_port() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


def ask(path: Path, request: str, then: str = "") -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        client.sendall(request.encode())
        answer = b""
        if then:
            answer += client.recv(65536)
            client.sendall(then.encode())
        client.shutdown(socket.SHUT_WR)
        while data := client.recv(65536):
            answer += data
    return answer


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.0.1",
        "172.20.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
    ]
    + [
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
    ],
)
def test_internal_addresses_in_all_their_disguises(address: str) -> None:
    assert is_internal(address)


@pytest.mark.parametrize("address", ["203.0.113.80", "8.8.8.8", "2001:4860:4860::8888", "64:ff9b::808:808"])
def test_public_addresses(address: str) -> None:
    assert not is_internal(address)


def test_the_configured_index_passes_wherever_it_is(tmp_path: Path, index_port: int) -> None:
    proxy = IndexProxy(tmp_path / "p.sock", PackageIndex(f"http://127.0.0.1:{index_port}/simple"))
    proxy.start()
    try:
        plain = (
            f"GET http://127.0.0.1:{index_port}/a?b=1 HTTP/1.1\r\nHost: x\r\nProxy-Connection: keep\r\n\r\n"
        )
        assert ask(tmp_path / "p.sock", plain).endswith(b"path /a?b=1")
        tunnel = f"CONNECT 127.0.0.1:{index_port} HTTP/1.1\r\n\r\n"
        answer = ask(tmp_path / "p.sock", tunnel, "GET /c HTTP/1.0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"path /c")
    finally:
        proxy.stop()


@pytest.mark.parametrize(
    "target",
    [
        "127.0.0.1:{port}",
        "localhost:{port}",
        "127.0.0.1:443",
        "localhost:80",
        "[::1]:443",
        "169.254.169.254:80",
    ]
    + ["203.0.113.9:22", "2130706433:443", "0x7f.1:443"],
)
def test_everything_else_of_this_machine_is_refused(tmp_path: Path, index_port: int, target: str) -> None:
    proxy = IndexProxy(tmp_path / "p.sock", PackageIndex())
    proxy.start()
    try:
        answer = ask(tmp_path / "p.sock", f"CONNECT {target.format(port=index_port)} HTTP/1.1\r\n\r\n")
        assert answer.startswith((b"HTTP/1.1 403", b"HTTP/1.1 502"))
        host = target.format(port=index_port)
        answer = ask(tmp_path / "p.sock", f"GET http://{host}/ HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith((b"HTTP/1.1 403", b"HTTP/1.1 502"))
    finally:
        proxy.stop()


def test_an_address_of_this_machine_is_refused_though_it_is_public(tmp_path: Path) -> None:
    proxy = IndexProxy(tmp_path / "p.sock", PackageIndex(), own_addresses=["203.0.113.7"])
    proxy.start()
    try:
        assert ask(tmp_path / "p.sock", "CONNECT 203.0.113.7:443 HTTP/1.1\r\n\r\n").startswith(
            b"HTTP/1.1 403"
        )
    finally:
        proxy.stop()


@pytest.mark.parametrize(
    "junk", ["", "\r\n\r\n", "GET\r\n\r\n", "CONNECT :::: HTTP/1.1\r\n\r\n", "x" * 70000]
)
def test_junk_ends_only_its_own_connection(tmp_path: Path, index_port: int, junk: str) -> None:
    proxy = IndexProxy(tmp_path / "p.sock", PackageIndex(f"http://127.0.0.1:{index_port}/"))
    proxy.start()
    try:
        try:
            ask(tmp_path / "p.sock", junk)
        except OSError:
            pass
        answer = ask(tmp_path / "p.sock", f"GET http://127.0.0.1:{index_port}/ok HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.endswith(b"path /ok")
    finally:
        proxy.stop()
