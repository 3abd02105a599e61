"""What does the platform cost a training job, in CPU-seconds per image?

The same training (a NumPy network on synthetic 28 x 28 images, one thread) runs in turns inside a job and as a plain
process, by the very same interpreter and packages. Two ratios inside / outside:
  own    user + system time of the training's own process, as the kernel counted it at its end;
  whole  the same plus all that the platform spent on that job: runner, sandbox, log and metric reading
         (the runner's processes are adopted by this benchmark, so that the kernel's count of all of them is exact).

    .venv/bin/python benchmarks/overhead.py [--pairs 7] [--seconds 6] [--json FILE]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from measured_platform import MeasuredPlatform
from report import add_json_option, describe_machine, print_table, say, summarize, write_json

from trainshed import Client

_PR_SET_CHILD_SUBREAPER = 36
# One thread: two would compete with each other and with the clock.
_VARIABLES = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_SCRIPT = """\
import json, resource, sys, time
import numpy as np

images_wanted = int(sys.argv[1].split("=")[-1])
random = np.random.default_rng(1)
images = random.normal(size=(4096, 784)).astype(np.float32)
labels = random.integers(0, 10, 4096)
first = random.normal(0, 0.05, (784, 256)).astype(np.float32)
second = random.normal(0, 0.05, (256, 10)).astype(np.float32)
done, batch = 0, 64
while done < images_wanted:
    rows = random.integers(0, 4096, batch)
    x, y = images[rows], labels[rows]
    hidden = np.maximum(x @ first, 0)
    scores = hidden @ second
    scores -= scores.max(axis=1, keepdims=True)
    p = np.exp(scores)
    p /= p.sum(axis=1, keepdims=True)
    loss = float(-np.log(p[np.arange(batch), y] + 1e-9).mean())
    p[np.arange(batch), y] -= 1
    back = (p @ second.T) * (hidden > 0)
    second -= 0.001 * (hidden.T @ p)
    first -= 0.001 * (x.T @ back)
    done += batch
    if done % 6400 == 0:
        print(f"epoch: 1 step: {done // batch}, loss is {loss:.4f}", flush=True)
used = resource.getrusage(resource.RUSAGE_SELF)
print("RESULT " + json.dumps({"images": done, "cpu": used.ru_utime + used.ru_stime}), flush=True)
"""


def run_plain(python: Path, script: Path, images: int) -> tuple[float, float]:
    """CPU-seconds per image of the training as a plain process: its own count, and its parent's."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [str(python), str(script), f"--images={images}"], stdout=output, env={**os.environ, **_VARIABLES}
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        result = _result(output.read().decode())
    return result["cpu"] / result["images"], (used.ru_utime + used.ru_stime) / result["images"]


def run_inside(client: Client, folder: Path, images: int, platform_pids: set[int]) -> tuple[float, float]:
    """The same as a job; the second count is of everything that ran for it."""
    job = client.submit(
        {
            "code": str(folder),
            "boot": "train.py",
            "engine": "numpy",
            "flavor": "cpu.1",
            "parameters": {"images": images},
            "environment": _VARIABLES,
        }
    )
    ended = client.wait(job.id, timeout=300)
    text = b"".join(client.logs(job.id)).decode()
    if ended.phase != "Completed":
        raise RuntimeError(f"the job is {ended.phase}: {client.explain(job.id)}\n{text[-2000:]}")
    result = _result(text)
    return result["cpu"] / result["images"], _reap_runner(platform_pids) / result["images"]


def _reap_runner(platform_pids: set[int]) -> float:
    """CPU-seconds of the runner and all that it had started, once it is gone."""
    deadline = time.monotonic() + 30
    spent = 0.0
    found = False
    while time.monotonic() < deadline:
        try:
            pid, _, used = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            pid = 0
        if pid and pid not in platform_pids:
            spent += used.ru_utime + used.ru_stime
            found = True
            continue
        if found:
            return spent
        time.sleep(0.02)
    raise RuntimeError("the runner did not come to its end")


def _result(text: str) -> dict[str, float]:
    for line in text.splitlines():
        if line.startswith("RESULT "):
            result: dict[str, float] = json.loads(line.removeprefix("RESULT "))
            return result
    raise RuntimeError(f"the training did not say what it used:\n{text[-2000:]}")


def main() -> int:
    """Measure and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=6.0, help="how long one training takes, roughly")
    add_json_option(parser)
    options = parser.parse_args()
    machine = describe_machine()
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this process cannot adopt orphans")
    inside: list[tuple[float, float]] = []
    outside: list[tuple[float, float]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-code-")))
        folder.chmod(0o755)
        script = folder / "train.py"
        script.write_text(_SCRIPT)
        platform = stack.enter_context(MeasuredPlatform())
        client = stack.enter_context(platform.client())
        pids = set(platform.pids().values())
        say("building the environment and warming up")
        run_inside(client, folder, 6400, pids)
        python = _environment_python(platform.home.environments)
        per_image = run_plain(python, script, 6400)[0]
        images = max(6400, int(options.seconds / per_image) // 64 * 64)
        say(f"{images} images in each training")
        for number in range(options.pairs):
            # Who goes first changes, so that a drift of the machine favours neither.
            if number % 2:
                inside.append(run_inside(client, folder, images, pids))
                outside.append(run_plain(python, script, images))
            else:
                outside.append(run_plain(python, script, images))
                inside.append(run_inside(client, folder, images, pids))
            say(f"pair {number + 1} of {options.pairs}: own {inside[-1][0] / outside[-1][0]:.3f}")
    own = [a[0] / b[0] for a, b in zip(inside, outside, strict=True)]
    whole = [a[1] / b[1] for a, b in zip(inside, outside, strict=True)]
    micro = 1e6
    rows = [
        [
            name,
            statistics.median(row[index] for row in outside) * micro,
            statistics.median(row[index] for row in inside) * micro,
            statistics.median(ratios),
            min(ratios),
            max(ratios),
        ]
        for index, (name, ratios) in enumerate(
            (("the training's own process", own), ("with all the platform did for it", whole))
        )
    ]
    print_table(
        f"CPU-microseconds per image, {len(own)} pairs in turns, {images} images each",
        ["what", "outside", "inside", "ratio", "min", "max"],
        rows,
    )
    write_json(
        options.json,
        "overhead",
        machine,
        {"images": images, "own_ratio": summarize(own), "whole_ratio": summarize(whole)},
    )
    return 0


def _environment_python(environments: Path) -> Path:
    """The interpreter of the environment that was built for the job."""
    found = sorted(environments.glob("*/bin/python")) + sorted(environments.glob("*/*/bin/python"))
    for python in found:
        if (
            subprocess.run([str(python), "-c", "import numpy"], check=False, capture_output=True).returncode
            == 0
        ):
            return python
    raise RuntimeError(f"no environment with NumPy below {environments}")


if __name__ == "__main__":
    raise SystemExit(main())
