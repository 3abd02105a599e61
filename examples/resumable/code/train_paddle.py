"""A Paddle training that goes on where an earlier attempt ended."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time

import paddle
from checkpoint import FOLDER, Hurry, write_whole
from data import make_points, shuffle
from paddle import nn


def main() -> None:
    """Train; print the loss of each epoch, and a digest of the weights at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--save_every", type=int, default=1, help="epochs between two checkpoints")
    parser.add_argument(
        "--pause", type=float, default=0, help="seconds to rest after each epoch, to watch it"
    )
    args = parser.parse_args()

    paddle.seed(1)
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 2))
    schedule = paddle.optimizer.lr.StepDecay(0.01, step_size=10, gamma=0.7)
    # Its state holds that of the schedule.
    optimizer = paddle.optimizer.Adam(schedule, parameters=net.parameters())
    last = FOLDER / "last.pdparams"
    first = 0
    if last.exists():
        saved = paddle.load(str(last))
        net.set_state_dict(saved["net"])
        optimizer.set_state_dict(saved["optimizer"])
        first = saved["epoch"] + 1
    print(f"begins with epoch {first}", flush=True)

    def save(epoch: int) -> None:
        state = {"epoch": epoch, "net": net.state_dict(), "optimizer": optimizer.state_dict()}
        write_whole(last, lambda path: paddle.save(state, str(path)))

    hurry = Hurry()
    points, labels = (paddle.to_tensor(array) for array in make_points())
    for epoch in range(first, args.epochs):
        # The random numbers of an epoch (here: of the dropout) depend on the epoch alone.
        paddle.seed(100 + epoch)
        for batch in shuffle(epoch):
            rows = paddle.to_tensor(batch)
            loss = nn.functional.cross_entropy(net(points[rows]), labels[rows].astype("int64"))
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
        schedule.step()
        print(f"epoch: {epoch}, loss: {float(loss):.6f}", flush=True)
        if hurry.must_save or (epoch + 1) % args.save_every == 0:
            save(epoch)
            hurry.must_save = False
        if hurry.must_leave:
            print(f"leaves after epoch {epoch}", flush=True)
            sys.exit(0)
        time.sleep(args.pause)
    digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in net.state_dict().values()))
    print(f"weights: {digest.hexdigest()[:16]}", flush=True)


if __name__ == "__main__":
    main()
