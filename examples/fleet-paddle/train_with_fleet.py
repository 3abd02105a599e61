"""Paddle's collective training with fleet, adapted from a guide for Paddle 2.0 on ModelArts.

What Paddle 3 forces to be different from the guide:
  1. `paddle.fluid` is gone: layers come from `paddle.nn`, the optimizer from `paddle.optimizer`.
  2. `fleet` is `paddle.distributed.fleet`; the role maker is inside `fleet.init(is_collective=True)`.
  3. Programs, executors and feeds are gone: the model is called, and `fleet.distributed_model` wraps it.
  4. `fleet.save_persistables` is `paddle.save`.
Beside that, it learns MNIST instead of random numbers, so that one can see whether it learned, and copies data and
results with MoXing, as scripts for ModelArts do.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tempfile
from pathlib import Path

import moxing as mox
import numpy as np
import paddle
from paddle import nn
from paddle.distributed import fleet
from paddle.io import DataLoader, DistributedBatchSampler, TensorDataset


def read_idx(path: Path) -> np.ndarray:
    """An array from a file in MNIST's own format: two zero bytes, type, rank, sizes, data."""
    data = path.read_bytes()
    rank = data[3]
    shape = tuple(int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(rank))
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def load(folder: Path, part: str) -> tuple[paddle.Tensor, paddle.Tensor]:
    """The images and labels of a part of the data set."""
    images = read_idx(folder / f"{part}-images-idx3-ubyte").reshape(-1, 784).astype("float32") / 255
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte").astype("int64").reshape(-1, 1)
    return paddle.to_tensor(images), paddle.to_tensor(labels)


def digest_weights(net: nn.Layer) -> str:
    """A short name for all weights of the network: equal on ranks that hold the same model."""
    digest = hashlib.sha256()
    for parameter in net.parameters():
        digest.update(parameter.numpy().tobytes())
    return digest.hexdigest()[:16]


def main() -> None:
    """Train, test on rank 0, and write the model and its accuracy to the output folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_url", required=True, help="URL of a folder with the four idx files")
    parser.add_argument("--train_url", required=True, help="URL of a folder for the results")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch_size", type=int, default=64)
    args = parser.parse_args()

    # The device of this process, as the launcher gave it; a machine without GPUs has none.
    if paddle.is_compiled_with_cuda():
        paddle.set_device("gpu:" + os.getenv("FLAGS_selected_gpus", "0").split(",")[0])  # noqa: SIM112
    fleet.init(is_collective=True)
    rank, size = fleet.worker_index(), fleet.worker_num()
    print(f"rank {rank} of {size}", flush=True)

    data_folder = Path(tempfile.mkdtemp())
    mox.file.copy_parallel(args.data_url, str(data_folder))

    paddle.seed(1)
    net = nn.Sequential(nn.Linear(784, 128), nn.Tanh(), nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 10))
    optimizer = fleet.distributed_optimizer(paddle.optimizer.Adam(0.002, parameters=net.parameters()))
    model = fleet.distributed_model(net)
    images, labels = load(data_folder, "train")
    data = TensorDataset([images, labels])
    sampler = DistributedBatchSampler(data, args.batch_size, size, rank, shuffle=True, drop_last=True)
    for step, (batch, answers) in enumerate(DataLoader(data, batch_sampler=sampler), 1):
        loss = nn.functional.cross_entropy(model(batch), answers)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if step % 50 == 0:
            print(f"epoch: 1 step: {step}, loss is {float(loss):.4f}", flush=True)
        if step == args.steps:
            break
    print(f"weights of rank {rank}: {digest_weights(net)}", flush=True)
    if rank == 0:
        images, labels = load(data_folder, "t10k")
        accuracy = float((net(images).argmax(axis=1) == labels.flatten()).astype("float32").mean())
        print(f"accuracy: {accuracy:.4f}", flush=True)
        results = Path(tempfile.mkdtemp())
        paddle.save(net.state_dict(), str(results / "model.pdparams"))
        (results / "accuracy.json").write_text(json.dumps({"accuracy": accuracy, "ranks": size}))
        mox.file.copy_parallel(str(results), args.train_url)


if __name__ == "__main__":
    main()
