"""Train a small neural network on MNIST, with nothing but NumPy."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np


def read_idx(path: Path) -> np.ndarray:
    """An array from a file in MNIST's own format: two zero bytes, type, rank, sizes, data."""
    data = path.read_bytes()
    rank = data[3]
    shape = tuple(int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(rank))
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def main() -> None:
    """Train, test, and write the model and its accuracy to the output folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_url", type=Path, required=True, help="folder with the four idx files")
    parser.add_argument("--train_url", type=Path, required=True, help="folder for the results")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--batch_size", type=int, default=64)
    args = parser.parse_args()

    images = read_idx(args.data_url / "train-images-idx3-ubyte").reshape(-1, 784).astype(np.float32) / 255
    labels = read_idx(args.data_url / "train-labels-idx1-ubyte")
    test_images = read_idx(args.data_url / "t10k-images-idx3-ubyte").reshape(-1, 784).astype(np.float32) / 255
    test_labels = read_idx(args.data_url / "t10k-labels-idx1-ubyte")
    print(f"{len(images)} images to learn from, {len(test_images)} to test with", flush=True)

    random = np.random.default_rng(1)
    first = random.normal(0, 0.05, (784, 64)).astype(np.float32)
    second = random.normal(0, 0.05, (64, 10)).astype(np.float32)
    accuracy = 0.0
    for epoch in range(1, args.epochs + 1):
        began = time.perf_counter()
        order = random.permutation(len(images))
        for step, start in enumerate(range(0, len(order), args.batch_size), 1):
            batch = order[start : start + args.batch_size]
            hidden = np.maximum(images[batch] @ first, 0)
            scores = hidden @ second
            chances = np.exp(scores - scores.max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            rows = np.arange(len(batch))
            loss = -np.log(chances[rows, labels[batch]] + 1e-9).mean()
            chances[rows, labels[batch]] -= 1
            back = (chances @ second.T) * (hidden > 0)
            second -= args.lr * (hidden.T @ chances) / len(batch)
            first -= args.lr * (images[batch].T @ back) / len(batch)
            if step % 100 == 0:
                print(f"epoch: {epoch} step: {step}, loss is {loss:.4f}", flush=True)
        answers = (np.maximum(test_images @ first, 0) @ second).argmax(axis=1)
        accuracy = float((answers == test_labels).mean())
        speed = len(images) / (time.perf_counter() - began)
        print(f"epoch: {epoch}, accuracy: {accuracy:.4f}, {speed:.0f} images/s", flush=True)

    args.train_url.mkdir(parents=True, exist_ok=True)
    np.savez(args.train_url / "model.npz", first=first, second=second)
    (args.train_url / "accuracy.json").write_text(json.dumps({"accuracy": accuracy}))


if __name__ == "__main__":
    main()
