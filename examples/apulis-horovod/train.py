"""Linear regression in data parallel: every rank has its own data, and the ranks average their gradients.

The guide's script imports Horovod, which no longer builds against today's frameworks. This one does the same with sockets:
rank 0 sums up, at MASTER_ADDR:MASTER_PORT. What it shows is what the launcher gives every rank.
"""

import json
import os
import socket
import struct
import sys

import numpy as np

checkpoints, logs = sys.argv[1], sys.argv[2]
rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
local = int(os.environ["HOROVOD_LOCAL_RANK"])
assert os.environ["OMPI_COMM_WORLD_RANK"] == str(rank)
os.makedirs(logs, exist_ok=True)


class Ring:
    """Sums up an array over all ranks."""

    def __init__(self):
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        if rank == 0:
            server = socket.create_server(address)
            server.settimeout(120)
            self.peers = [server.accept()[0] for _ in range(size - 1)]
        else:
            self.peers = [self._connect(address)]

    def _connect(self, address):
        import time

        deadline = time.monotonic() + 120
        while True:
            try:
                return socket.create_connection(address, timeout=120)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def total(self, array):
        if rank:
            self._send(self.peers[0], array)
            return self._receive(self.peers[0])
        for peer in self.peers:
            array = array + self._receive(peer)
        for peer in self.peers:
            self._send(peer, array)
        return array

    def _send(self, peer, array):
        data = array.astype(np.float64).tobytes()
        peer.sendall(struct.pack("!I", len(data)) + data)

    def _receive(self, peer):
        (length,) = struct.unpack("!I", self._read(peer, 4))
        return np.frombuffer(self._read(peer, length))

    def _read(self, peer, length):
        data = b""
        while len(data) < length:
            piece = peer.recv(length - len(data))
            if not piece:
                raise ConnectionError("a rank has gone")
            data += piece
        return data


ring = Ring()
random = np.random.default_rng(rank)
truth = np.array([2.0, -3.0, 0.5])
x = random.normal(size=(500, 3))
y = x @ truth + random.normal(scale=0.01, size=500)
weights = np.zeros(3)
for step in range(1, 51):
    gradient = ring.total(2 * x.T @ (x @ weights - y) / len(x)) / size
    weights -= 0.1 * gradient
    if rank == 0 and step % 10 == 0:
        loss = float(np.mean((x @ weights - y) ** 2))
        print(f"epoch: 1 step: {step}, loss is {loss}", flush=True)
print(
    f"rank {rank} of {size}, local rank {local} on {socket.gethostname()}: {np.round(weights, 3)}", flush=True
)
if rank == 0:
    with open(os.path.join(checkpoints, "weights.json"), "w") as file:
        json.dump(weights.tolist(), file)
