"""The one way to the network for code of packages: a proxy that lets only package indexes pass.

It stands outside the sandbox on a unix socket. The configured indexes may be reached wherever they are;
every other host (an index's pages may link to any) only on the ports of the web and only when its address
is not one of this machine, of the local network or of a cloud's metadata service.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from trainshed.runner.environment.index import PackageIndex

__all__ = ["IndexProxy", "is_internal"]

_HEADER_LIMIT = 65536
_MOST_CONNECTIONS = 128
_WEB_PORTS = (80, 443)
_INTERNAL = tuple(
    ipaddress.ip_network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.168.0.0/16", "224.0.0.0/3", "::/128", "::1/128", "fc00::/7", "fe80::/10", "ff00::/8"),
    )
)


def is_internal(address: str) -> bool:
    """Whether an address belongs to this machine, the local network or no single host."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        # Addresses that carry an IPv4 one are judged by it.
        inner = parsed.ipv4_mapped or parsed.sixtofour
        if inner is None and parsed in ipaddress.ip_network("64:ff9b::/96"):
            inner = ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)
        if inner is not None:
            return is_internal(str(inner))
    return any(parsed.version == network.version and parsed in network for network in _INTERNAL)


class _Refused(Exception):
    pass


class IndexProxy:
    """An HTTP proxy on a unix socket, for one installation."""

    def __init__(
        self, path: Path, index: PackageIndex, *, own_addresses: Iterable[str] | None = None
    ) -> None:
        self._path = path
        self._hosts = set(index.hosts)
        variables = index.uv_variables()
        self._upstream = variables.get("HTTPS_PROXY") or variables.get("ALL_PROXY") or ""
        self._own = set(_own_addresses() if own_addresses is None else own_addresses)
        self._listener: socket.socket | None = None
        self._guard = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._stopped = False

    def start(self) -> None:
        """Listen; each connection is served by a thread of its own."""
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # The path of a unix socket is short by nature; the folder's descriptor makes any folder reachable.
        folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            listener.bind(f"/proc/self/fd/{folder}/{self._path.name}")
        finally:
            os.close(folder)
        self._path.chmod(0o666)
        listener.listen(64)
        self._listener = listener
        self._start_thread(self._serve, listener)

    def stop(self) -> None:
        """End every connection and every thread: the caller may need to be a process of one thread again."""
        with self._guard:
            self._stopped = True
            sockets, threads = list(self._sockets), list(self._threads)
        if self._listener is not None:
            sockets.append(self._listener)
        for item in sockets:
            with suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(5)
        if self._listener is not None:
            self._listener.close()
            self._path.unlink(missing_ok=True)

    def _start_thread(self, target: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=self._run_thread, args=(target, *arguments), daemon=True)
        with self._guard:
            self._threads.add(thread)
        thread.start()
        return thread

    def _run_thread(self, target: Callable[..., None], *arguments: object) -> None:
        try:
            target(*arguments)
        except (OSError, ValueError):
            pass
        finally:
            with self._guard:
                self._threads.discard(threading.current_thread())

    @contextmanager
    def _known(self, item: socket.socket) -> Iterator[socket.socket]:
        """A socket that `stop` will end."""
        with item:
            with self._guard:
                if self._stopped:
                    raise OSError("the proxy has been stopped")
                self._sockets.add(item)
            try:
                yield item
            finally:
                with self._guard:
                    self._sockets.discard(item)

    def _serve(self, listener: socket.socket) -> None:
        while True:
            client = listener.accept()[0]
            with self._guard:
                is_full = self._stopped or len(self._sockets) > 2 * _MOST_CONNECTIONS
            if is_full:
                client.close()
            else:
                self._start_thread(self._answer, client)

    def _answer(self, client: socket.socket) -> None:
        with self._known(client):
            client.settimeout(300)
            self._forward(client)

    def _forward(self, client: socket.socket) -> None:
        head, body = _read_head(client)
        method, target, *_ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        tunnel = method == "CONNECT"
        parts = urlsplit(f"//{target}" if tunnel else target)
        host, port = (parts.hostname or "").lower(), parts.port or (443 if tunnel else 80)
        try:
            if not host or (not tunnel and parts.scheme != "http"):
                raise _Refused("only http and https pass")
            server = self._connect(host, port, tunnel)
        except _Refused as refusal:
            answer = f"Refused by the platform: {refusal}.\n"
            client.sendall(f"HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n{answer}".encode())
            return
        except OSError:
            client.sendall(b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\n")
            return
        with self._known(server):
            if tunnel:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                body = _plain_request(head, method, parts.path or "/", parts.query) + body
            if body:
                server.sendall(body)
            back = self._start_thread(_pump, server, client)
            _pump(client, server)
            back.join()

    def _connect(self, host: str, port: int, tunnel: bool) -> socket.socket:
        known = (host, port) in self._hosts
        if not known and port not in _WEB_PORTS:
            raise _Refused(f"{host}:{port} is no package index")
        if self._upstream and tunnel:
            with suppress(ValueError):
                if not known and is_internal(host):
                    raise _Refused(f"{host} is an internal address")
            return _connect_upstream(self._upstream, host, port)
        addresses = [str(item[4][0]) for item in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        if not known:
            addresses = [a for a in addresses if not is_internal(a) and a not in self._own]
            if not addresses:
                raise _Refused(f"{host} is an internal address")
        # The address that was checked is the one that is used: a second look-up could answer differently.
        server = socket.create_connection((addresses[0], port), timeout=30)
        server.settimeout(300)
        return server


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(65536)
        if not piece or len(data) > _HEADER_LIMIT:
            raise ValueError("no request")
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    return head, body


def _plain_request(head: bytes, method: str, path: str, query: str) -> bytes:
    """A request as the server itself expects it; one per connection, so that each is checked."""
    lines = [
        line for line in head.split(b"\r\n")[1:] if not line.lower().startswith((b"proxy-", b"connection:"))
    ]
    first = f"{method} {path}{'?' + query if query else ''} HTTP/1.1".encode("latin-1")
    return b"\r\n".join([first, *lines, b"Connection: close", b"", b""])


def _connect_upstream(proxy: str, host: str, port: int) -> socket.socket:
    parts = urlsplit(proxy)
    server = socket.create_connection((parts.hostname or "", parts.port or 8080), timeout=30)
    server.settimeout(300)
    request = f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n"
    if parts.username:
        word = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request += f"Proxy-Authorization: Basic {base64.b64encode(word.encode()).decode()}\r\n"
    server.sendall(f"{request}\r\n".encode("latin-1"))
    head, _ = _read_head(server)
    if b" 200" not in head.split(b"\r\n", 1)[0]:
        server.close()
        raise OSError("the proxy refused")
    return server


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _own_addresses() -> set[str]:
    """Addresses of this machine that other machines use: its services must not be reachable by them."""
    found: set[str] = set()
    with suppress(OSError):
        found |= {str(item[4][0]) for item in socket.getaddrinfo(socket.gethostname(), None)}
    for family, far in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Connecting a datagram socket sends nothing; it only chooses the address of this side.
            probe.connect((far, 9))
            found.add(str(probe.getsockname()[0]))
    return found
