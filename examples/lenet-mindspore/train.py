"""LeNet on MNIST with MindSpore, on one device or data parallel over all that the job has.

Written as for Ascend: `--device_target=Ascend`, `init()` and the rank from RANK_ID and RANK_SIZE. On a CPU the very same
script runs with `--device_target=CPU`, and in a rehearsal without any change.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from pathlib import Path

import mindspore as ms
import mindspore.dataset as ds
from mindspore import Model, Tensor, context, nn
from mindspore.common.initializer import HeUniform
from mindspore.communication import get_group_size, get_rank, init
from mindspore.dataset import transforms, vision
from mindspore.train import Accuracy, Callback, LossMonitor


class LeNet(nn.Cell):
    """Two convolutions and three dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.SequentialCell(
            nn.Conv2d(1, 6, 5, pad_mode="valid", weight_init=HeUniform()),
            nn.ReLU(),
            nn.MaxPool2d(2, 2),
            nn.Conv2d(6, 16, 5, pad_mode="valid", weight_init=HeUniform()),
            nn.ReLU(),
            nn.MaxPool2d(2, 2),
            nn.Flatten(),
        )
        self.classifier = nn.SequentialCell(
            nn.Dense(256, 120, weight_init=HeUniform()),
            nn.ReLU(),
            nn.Dense(120, 84, weight_init=HeUniform()),
            nn.ReLU(),
            nn.Dense(84, 10),
        )

    def construct(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x))


class Speed(Callback):
    """Prints how many images this rank learned per second."""

    def __init__(self, batch_size: int) -> None:
        super().__init__()
        self._batch_size = batch_size

    def on_train_epoch_begin(self, run_context: object) -> None:
        self._began = time.perf_counter()

    def on_train_epoch_end(self, run_context: object) -> None:
        images = run_context.original_args().batch_num * self._batch_size  # type: ignore[attr-defined]
        print(f"throughput: {images / (time.perf_counter() - self._began):.1f} images/s", flush=True)


def load(folder: Path, usage: str, batch_size: int, shards: int, shard: int, steps: int = 0) -> ds.Dataset:
    """The images of this rank, in batches."""
    data = ds.MnistDataset(str(folder), usage, shuffle=usage == "train", num_shards=shards, shard_id=shard)
    data = data.map([vision.Rescale(1 / 255, 0), vision.HWC2CHW()], "image")
    data = data.map(transforms.TypeCast(ms.int32), "label")
    data = data.batch(batch_size, drop_remainder=True)
    return data.take(steps) if steps else data


def digest_weights(net: nn.Cell) -> str:
    """A short name for all weights of the network: equal on ranks that hold the same model."""
    digest = hashlib.sha256()
    for parameter in net.get_parameters():
        digest.update(parameter.asnumpy().tobytes())
    return digest.hexdigest()[:16]


def main() -> None:
    """Train, test on rank 0, and write the model and its accuracy to the output folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_url", type=Path, required=True, help="folder with the four idx files")
    parser.add_argument("--train_url", type=Path, required=True, help="folder for the results")
    parser.add_argument("--device_target", default="CPU", choices=["Ascend", "GPU", "CPU"])
    parser.add_argument("--steps", type=int, default=600, help="steps of training; 0 is a whole epoch")
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.002)
    args = parser.parse_args()

    ms.set_seed(1)
    context.set_context(
        mode=context.GRAPH_MODE,
        device_target=args.device_target,
        device_id=int(os.environ.get("DEVICE_ID", "0")),
    )
    rank, size = 0, int(os.environ.get("RANK_SIZE", "1"))
    if size > 1:
        init()
        rank, size = get_rank(), get_group_size()
        context.set_auto_parallel_context(
            device_num=size, parallel_mode=context.ParallelMode.DATA_PARALLEL, gradients_mean=True
        )
    print(f"rank {rank} of {size}", flush=True)

    net = LeNet()
    model = Model(
        net,
        nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"),
        nn.Adam(net.trainable_params(), args.lr),
        metrics={"accuracy": Accuracy()},
    )
    train = load(args.data_url, "train", args.batch_size, size, rank, args.steps)
    model.train(1, train, callbacks=[LossMonitor(50), Speed(args.batch_size)], dataset_sink_mode=False)
    print(f"weights of rank {rank}: {digest_weights(net)}", flush=True)
    if rank == 0:
        accuracy = float(
            model.eval(load(args.data_url, "test", 500, 1, 0), dataset_sink_mode=False)["accuracy"]
        )
        print(f"accuracy: {accuracy:.4f}", flush=True)
        args.train_url.mkdir(parents=True, exist_ok=True)
        ms.save_checkpoint(net, str(args.train_url / "lenet.ckpt"))
        (args.train_url / "accuracy.json").write_text(json.dumps({"accuracy": accuracy, "ranks": size}))


if __name__ == "__main__":
    main()
