"""Start a platform in .demo/, train a real model on it, and show what came out. Run by `make demo`.

Another folder can be named: `python scripts/demo.py FOLDER`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
FOLDER = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else REPOSITORY / ".demo"
HOME = FOLDER / "home"
EXAMPLE = "examples/digits-numpy"


def trainshed(*arguments: str, show: bool = True, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    """Run a command as a user would, and show it."""
    if show:
        print(f"\n\033[1m$ trainshed {' '.join(arguments)}\033[0m", flush=True)
    return subprocess.run(
        [sys.executable, "-m", "trainshed.cli.main", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "TRAINSHED_HOME": str(HOME)},
        capture_output=not show,
        check=check,
    )


def main() -> int:
    """The demonstration; its exit code is 0 only when a model was really trained."""
    started = time.monotonic()
    if trainshed("status", "--json", show=False, check=False).returncode != 0:
        trainshed("up", "--detach", "--port", "0", "--obs-port", "0")
    for bucket in ("datasets", "results"):
        # A second demonstration finds the buckets of the first.
        if trainshed("obs", "ls", f"obs://{bucket}", show=False, check=False).returncode != 0:
            trainshed("obs", "mb", f"obs://{bucket}")
    run = time.strftime("%H%M%S")
    trainshed("obs", "cp", "-r", f"{EXAMPLE}/data/", "obs://datasets/digits/")
    trainshed(
        *("run", "--name", f"digits-{run}", "--code", EXAMPLE, "--boot", "train.py"),
        *("--input", "data_url=obs://datasets/digits/", "--output", f"train_url=obs://results/run-{run}/"),
        *("--param", "epochs=10", "--flavor", "cpu.1", "--follow"),
    )
    trainshed("metrics", f"digits-{run}")
    results = FOLDER / f"run-{run}"
    trainshed("obs", "cp", "-r", f"obs://results/run-{run}/", f"{results}/")
    result = json.loads((results / "accuracy.json").read_text())
    link = trainshed("login-link", show=False).stdout.decode().split()[0]
    print(
        f"\nThe model lies in {results}/model.npz. It recognises {result['accuracy']:.1%} of "
        f"{result['test_images']} digits that it has never seen ({time.monotonic() - started:.0f} s).\n\n"
        f"  Console   {link}  (signs you in once)\n"
        f"  Try       export TRAINSHED_HOME={HOME}; .venv/bin/trainshed jobs\n"
        f"  Stop      make demo-down\n"
    )
    return 0 if result["accuracy"] > 0.9 else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as fault:
        print(f"\nThe demonstration stopped: `trainshed {' '.join(fault.cmd[3:])}` failed.", file=sys.stderr)
        print(f"Logs of the platform: {HOME / 'logs'}; stop it with: make demo-down", file=sys.stderr)
        sys.exit(1)
