"""A MindSpore training that goes on where an earlier attempt ended."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time

import mindspore as ms
from checkpoint import FOLDER, Hurry, write_whole
from data import make_points, shuffle
from mindspore import Tensor, nn


def main() -> None:
    """Train; print the loss of each epoch, and a digest of the weights at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--save_every", type=int, default=1, help="epochs between two checkpoints")
    parser.add_argument(
        "--pause", type=float, default=0, help="seconds to rest after each epoch, to watch it"
    )
    parser.add_argument("--device_target", default="CPU", choices=["Ascend", "GPU", "CPU"])
    args = parser.parse_args()

    ms.set_seed(1)
    ms.set_context(device_target=args.device_target)
    net = nn.SequentialCell(nn.Dense(2, 32), nn.Tanh(), nn.Dense(32, 2))
    optimizer = nn.Adam(net.trainable_params(), 0.01)
    loss_of = nn.WithLossCell(net, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"))
    # This cell holds the network and the optimizer with its moments: one checkpoint of it is all there is.
    step = nn.TrainOneStepCell(loss_of, optimizer)
    step.set_train()
    last = FOLDER / "last.ckpt"
    first = 0
    if last.exists():
        saved = ms.load_checkpoint(str(last))
        first = int(saved.pop("epoch").asnumpy()) + 1
        left_out, _ = ms.load_param_into_net(step, saved)
        assert not left_out, f"not in the checkpoint: {left_out}"
    print(f"begins with epoch {first}", flush=True)

    def save(epoch: int) -> None:
        write_whole(last, lambda path: ms.save_checkpoint(step, str(path), append_dict={"epoch": epoch}))

    hurry = Hurry()
    points, labels = make_points()
    for epoch in range(first, args.epochs):
        # The random numbers of an epoch depend on the epoch alone.
        ms.set_seed(100 + epoch)
        for batch in shuffle(epoch):
            loss = step(Tensor(points[batch]), Tensor(labels[batch]))
        print(f"epoch: {epoch}, loss: {float(loss.asnumpy()):.6f}", flush=True)
        if hurry.must_save or (epoch + 1) % args.save_every == 0:
            save(epoch)
            hurry.must_save = False
        if hurry.must_leave:
            print(f"leaves after epoch {epoch}", flush=True)
            sys.exit(0)
        time.sleep(args.pause)
    digest = hashlib.sha256(b"".join(value.asnumpy().tobytes() for value in net.get_parameters()))
    print(f"weights: {digest.hexdigest()[:16]}", flush=True)


if __name__ == "__main__":
    main()
