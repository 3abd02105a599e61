"""MNIST with PyTorch's DistributedDataParallel: on GPUs with NCCL, else on CPUs with Gloo.

Each rank finds its place in the variables that the platform (or torchrun) sets: RANK, LOCAL_RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def read_idx(path: Path) -> np.ndarray:
    """An array from a file in MNIST's own format: two zero bytes, type, rank, sizes, data."""
    data = path.read_bytes()
    rank = data[3]
    shape = tuple(int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(rank))
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def load(folder: Path, part: str) -> TensorDataset:
    """The images and labels of a part of the data set."""
    images = torch.from_numpy(read_idx(folder / f"{part}-images-idx3-ubyte").copy())
    labels = torch.from_numpy(read_idx(folder / f"{part}-labels-idx1-ubyte").astype(np.int64))
    return TensorDataset(images[:, None].float() / 255, labels)


def build_network() -> nn.Module:
    """A small convolutional network."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 5 * 5, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def digest_weights(net: nn.Module) -> str:
    """A short name for all weights of the network: equal on ranks that hold the same model."""
    digest = hashlib.sha256()
    for parameter in net.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def main() -> None:
    """Train, test on rank 0, and write the model and its accuracy to the output folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_url", type=Path, required=True, help="folder with the four idx files")
    parser.add_argument("--train_url", type=Path, required=True, help="folder for the results")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.002)
    args = parser.parse_args()

    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
        device, backend, device_ids = torch.device("cuda", local_rank), "nccl", [local_rank]
    else:
        device, backend, device_ids = torch.device("cpu"), "gloo", None
    dist.init_process_group(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {size}", flush=True)

    # Different weights on every rank at first: DistributedDataParallel makes them equal.
    torch.manual_seed(rank)
    net = DistributedDataParallel(build_network().to(device), device_ids=device_ids)
    optimizer = torch.optim.Adam(net.parameters(), lr=args.lr)
    data = load(args.data_url, "train")
    sampler = DistributedSampler(data, size, rank, seed=1)
    began = time.perf_counter()
    for step, (images, labels) in enumerate(
        DataLoader(data, args.batch_size, sampler=sampler, drop_last=True), 1
    ):
        loss = nn.functional.cross_entropy(net(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"epoch: 1 step: {step}, loss is {loss.item():.4f}", flush=True)
        if step == args.steps:
            break
    print(f"throughput: {step * args.batch_size / (time.perf_counter() - began):.1f} images/s", flush=True)
    print(f"weights of rank {rank}: {digest_weights(net)}", flush=True)
    if rank == 0:
        images, labels = (tensor.to(device) for tensor in load(args.data_url, "t10k").tensors)
        with torch.no_grad():
            accuracy = (net.module(images).argmax(1) == labels).float().mean().item()
        print(f"accuracy: {accuracy:.4f}", flush=True)
        args.train_url.mkdir(parents=True, exist_ok=True)
        torch.save(net.module.state_dict(), args.train_url / "model.pt")
        (args.train_url / "accuracy.json").write_text(json.dumps({"accuracy": accuracy, "ranks": size}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
