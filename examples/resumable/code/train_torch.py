"""A PyTorch training that goes on where an earlier attempt ended."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time

import torch
from checkpoint import FOLDER, Hurry, write_whole
from data import make_points, shuffle
from torch import nn


def main() -> None:
    """Train; print the loss of each epoch, and a digest of the weights at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--save_every", type=int, default=1, help="epochs between two checkpoints")
    parser.add_argument(
        "--pause", type=float, default=0, help="seconds to rest after each epoch, to watch it"
    )
    args = parser.parse_args()

    torch.manual_seed(1)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.7)
    # Everything that changes from step to step belongs into the checkpoint: forget the optimizer or the schedule, and
    # the training goes on, but elsewhere.
    parts = {"net": net, "optimizer": optimizer, "schedule": schedule}
    last = FOLDER / "last.pt"
    first = 0
    if last.exists():
        saved = torch.load(last)
        for name, part in parts.items():
            part.load_state_dict(saved[name])
        first = saved["epoch"] + 1
    print(f"begins with epoch {first}", flush=True)

    def save(epoch: int) -> None:
        state = {"epoch": epoch, **{name: part.state_dict() for name, part in parts.items()}}
        write_whole(last, lambda path: torch.save(state, path))

    hurry = Hurry()
    points, labels = (torch.from_numpy(array) for array in make_points())
    for epoch in range(first, args.epochs):
        # The random numbers of an epoch (here: of the dropout) depend on the epoch alone.
        torch.manual_seed(100 + epoch)
        for batch in shuffle(epoch):
            loss = nn.functional.cross_entropy(net(points[batch]), labels[batch].long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        print(f"epoch: {epoch}, loss: {loss.item():.6f}", flush=True)
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
