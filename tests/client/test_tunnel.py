"""A tunnel through the API, against a server that answers in every form that the protocol allows."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import struct
import threading
from collections.abc import Callable

import pytest

from trainshed.client.tunnel import Tunnel, open_tunnel
from trainshed.model.errors import NotAllowed, Unavailable

Serve = Callable[[socket.socket], None]


def answer(connection: socket.socket) -> str:
    """Accept the client's upgrade; returns what it asked for."""
    request = b""
    while b"\r\n\r\n" not in request:
        request += connection.recv(4096)
    lines = request.decode().split("\r\n")
    key = next(line.partition(": ")[2] for line in lines if line.startswith("Sec-WebSocket-Key"))
    digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
    connection.sendall(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n\r\n"
    )
    return request.decode()


def read_frame(connection: socket.socket) -> tuple[int, bytes]:
    def take(size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = connection.recv(size - len(data))
            assert piece
            data += piece
        return data

    first, second = take(2)
    assert second & 0x80, "a client masks what it sends"
    size = second & 0x7F
    if size == 126:
        (size,) = struct.unpack("!H", take(2))
    elif size == 127:
        (size,) = struct.unpack("!Q", take(8))
    mask = take(4)
    return first & 0x0F, bytes(byte ^ mask[index % 4] for index, byte in enumerate(take(size)))


def open_to(serve: Serve) -> tuple[Tunnel, threading.Thread]:
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        connection, _ = listener.accept()
        listener.close()
        with connection:
            serve(connection)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        return open_tunnel(f"http://127.0.0.1:{listener.getsockname()[1]}", "tsh_x", "/api/v1/x"), thread
    except BaseException:
        thread.join(90)
        raise


def test_bytes_arrive_in_every_form_of_message() -> None:
    large = os.urandom(70_000)

    def serve(connection: socket.socket) -> None:
        request = answer(connection)
        assert request.startswith("GET /api/v1/x HTTP/1.1") and "Authorization: Bearer tsh_x" in request
        connection.sendall(b"\x82\x03one" + b"\x89\x02hi" + b"\x02\x01t" + b"\x80\x02wo" + b"\x82\x00")
        connection.sendall(b"\x82\x7f" + struct.pack("!Q", len(large)) + large)
        assert read_frame(connection) == (10, b"hi")
        connection.sendall(b"\x88\x06" + struct.pack("!H", 1008) + b"over")

    tunnel, thread = open_to(serve)
    data = b""
    while piece := tunnel.receive():
        data += piece
    assert data == b"onetwo" + large
    assert tunnel.reason == "over"
    tunnel.close()
    thread.join(90)


@pytest.mark.parametrize("size", [1, 125, 126, 65_535, 65_536, 200_000])
def test_bytes_are_sent_masked_and_whole(size: int) -> None:
    data = os.urandom(size)
    heard = bytearray()

    def serve(connection: socket.socket) -> None:
        answer(connection)
        while True:
            kind, piece = read_frame(connection)
            if kind == 8:
                return
            heard.extend(piece)

    tunnel, thread = open_to(serve)
    tunnel.send(data)
    tunnel.finish()
    thread.join(90)
    assert tunnel.receive() == b""
    assert tunnel.reason == "", "who said goodbye needs no reason"
    tunnel.close()
    assert bytes(heard) == data


@pytest.mark.parametrize("said", [b"HTTP/1.1 403 Forbidden\r\n\r\n", b"HTTP/1.1 101 Nearly\r\n\r\n"])
def test_who_is_refused_gets_no_tunnel(said: bytes) -> None:
    with pytest.raises(NotAllowed):
        open_to(lambda connection: connection.sendall(said))


def test_a_server_that_hangs_up_or_is_away_is_told() -> None:
    with pytest.raises(Unavailable):
        open_to(lambda connection: None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unavailable):
        open_tunnel(f"http://127.0.0.1:{port}", "tsh_x", "/x")


def test_a_stream_that_is_cut_says_so() -> None:
    def serve(connection: socket.socket) -> None:
        answer(connection)
        connection.sendall(b"\x82\x09on")

    tunnel, thread = open_to(serve)
    assert tunnel.receive() == b""
    assert "was cut" in tunnel.reason
    tunnel.close()
    thread.join(90)
