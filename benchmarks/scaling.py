"""What does the platform cost a distributed training, and how long does it take to launch many ranks?

Two measurements:
  scaling  CPU-seconds per image of a PyTorch DDP training (gloo, synthetic images, one thread per rank) with 1 and with 2
           processes, as a job and under a bare torchrun of the very same environment, both at the same time; the ratio
           of each pair, and their median. Beside it the same with torchrun twice: what the machine's own noise makes of
           a ratio that is 1. (In turns, that noise reaches a quarter on a virtual machine with neighbours.)
  launch   the time until 16 trivial ranks (2 nodes x 8 pretend devices) have all begun, as a job and as 16 plain
           processes; the difference.

    .venv/bin/python benchmarks/scaling.py [--pairs 7] [--images 150000] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from measured_platform import MeasuredPlatform, plain_environment
from report import add_json_option, describe_machine, print_table, say, summarize, write_json

from trainshed import Client

_THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_RANKS = 16
_TRAINING = """\
import argparse, json, resource
import torch
import torch.distributed as dist
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--images", type=int)
wanted = parser.parse_args().images
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
images, labels = torch.randn(2048, 784), torch.randint(0, 10, (2048,))
network = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)))
optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
loss_of, batch, done = nn.CrossEntropyLoss(), 64, 0
before = resource.getrusage(resource.RUSAGE_SELF)
while done < wanted:
    rows = torch.randint(0, 2048, (batch,))
    optimizer.zero_grad()
    loss_of(network(images[rows]), labels[rows]).backward()
    optimizer.step()
    done += batch
used = resource.getrusage(resource.RUSAGE_SELF)
cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
print("RESULT " + json.dumps({"rank": dist.get_rank(), "images": done, "cpu": cpu}), flush=True)
dist.destroy_process_group()
"""
_TRIVIAL = 'import time\nprint(f"BEGAN {time.time()}", flush=True)\n'


def run_bare(python: Path, script: Path, processes: int, images: int) -> float:
    """CPU-seconds per image under torchrun."""
    done = subprocess.run(
        [
            str(python),
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc_per_node={processes}",
            str(script),
            f"--images={images}",
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
        env={**plain_environment(), **_THREADS},
    )
    return _cpu_per_image(done.stdout, processes)


def run_job(client: Client, folder: Path, processes: int, images: int) -> float:
    """The same as a job."""
    job = client.submit(
        {
            "code": str(folder),
            "boot": "train.py",
            "engine": "pytorch",
            "processes": processes,
            "flavor": "cpu.2" if processes > 1 else "cpu.1",
            "parameters": {"images": images},
            "environment": _THREADS,
        }
    )
    return _cpu_per_image(_text_of(client, job.id), processes)


def at_once(first: Callable[[], float], second: Callable[[], float]) -> tuple[float, float]:
    """What both give, run at the same time: whatever slows the machine down slows both."""
    with ThreadPoolExecutor(2) as threads:
        begun = threads.submit(first), threads.submit(second)
        return begun[0].result(), begun[1].result()


def launch_bare() -> float:
    """Seconds until 16 plain processes have begun."""
    began = time.time()
    processes = [
        subprocess.Popen([sys.executable, "-c", _TRIVIAL], stdout=subprocess.PIPE, text=True)
        for _ in range(_RANKS)
    ]
    return _last_beginning("".join(process.communicate(timeout=60)[0] for process in processes)) - began


def launch_job(client: Client, folder: Path) -> float:
    """Seconds until 16 ranks of a job on two nodes have begun, counted from its submit."""
    began = time.time()
    job = client.submit({"code": str(folder), "boot": "trivial.py", "nodes": 2, "flavor": "ascend.8"})
    return _last_beginning(_text_of(client, job.id)) - began


def _text_of(client: Client, job_id: str) -> str:
    ended = client.wait(job_id, timeout=600)
    text = b"".join(
        piece for stream in client.log_streams(job_id) for piece in client.logs(job_id, stream=stream.stream)
    ).decode("utf-8", "replace")
    if ended.phase != "Completed":
        raise RuntimeError(f"the job is {ended.phase}: {client.explain(job_id)}\n{text[-2000:]}")
    return text


def _cpu_per_image(text: str, processes: int) -> float:
    # Two ranks that write at once may share a line.
    results = [json.loads(found) for found in re.findall(r"RESULT (\{.*?\})", text)]
    if len(results) != processes:
        raise RuntimeError(f"{len(results)} of {processes} ranks said what they used:\n{text[-2000:]}")
    cpu, images = (float(sum(found[name] for found in results)) for name in ("cpu", "images"))
    return cpu / images


def _last_beginning(text: str) -> float:
    times = [float(line.partition("BEGAN ")[2]) for line in text.splitlines() if "BEGAN " in line]
    if len(times) != _RANKS:
        raise RuntimeError(f"{len(times)} of {_RANKS} ranks have begun:\n{text[-2000:]}")
    return max(times)


def main() -> int:
    """Measure and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--images", type=int, default=150000, help="images of each rank")
    add_json_option(parser)
    options = parser.parse_args()
    machine = describe_machine()
    pairs: dict[tuple[str, int], list[tuple[float, float]]] = {
        (kind, processes): [] for processes in (1, 2) for kind in ("job", "torchrun")
    }
    launches: list[tuple[float, float]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-code-")))
        folder.chmod(0o755)
        (folder / "train.py").write_text(_TRAINING)
        (folder / "trivial.py").write_text(_TRIVIAL)
        platform = stack.enter_context(MeasuredPlatform(rehearse="ascend:8"))
        client = stack.enter_context(platform.client())
        say("building the environments and warming up")
        run_job(client, folder, 1, 640)
        launch_job(client, folder)
        python = _environment_python(platform.home.environments)
        for number in range(options.pairs):
            for (kind, processes), found in pairs.items():
                bare = partial(run_bare, python, folder / "train.py", processes, options.images)
                job = partial(run_job, client, folder, processes, options.images)
                found.append(at_once(bare, job if kind == "job" else bare))
            launches.append((launch_bare(), launch_job(client, folder)))
            told = ", ".join(
                f"{kind} {count}: {_ratio(found[-1]):.3f}" for (kind, count), found in pairs.items()
            )
            say(f"pair {number + 1} of {options.pairs}: {told}")
    ratios = {key: [_ratio(pair) for pair in found] for key, found in pairs.items()}
    print_table(
        f"CPU-microseconds per image, {options.pairs} pairs, both at the same time",
        ["second", "processes", "torchrun", "second", "ratio", "min", "max"],
        [
            [
                kind,
                str(processes),
                statistics.median(pair[0] for pair in found) * 1e6,
                statistics.median(pair[1] for pair in found) * 1e6,
                statistics.median(ratios[kind, processes]),
                min(ratios[kind, processes]),
                max(ratios[kind, processes]),
            ]
            for (kind, processes), found in pairs.items()
        ],
    )
    added = [job - bare for bare, job in launches]
    print_table(
        f"Seconds until {_RANKS} ranks have begun",
        ["plain processes", "job on 2 nodes", "added", "max added"],
        [
            [
                f"{statistics.median(bare for bare, _ in launches):.2f}",
                statistics.median(job for _, job in launches),
                statistics.median(added),
                max(added),
            ]
        ],
    )
    write_json(
        options.json,
        "scaling",
        machine,
        {
            "ratio_1": summarize(ratios["job", 1]),
            "ratio_2": summarize(ratios["job", 2]),
            "noise_1": summarize(ratios["torchrun", 1]),
            "noise_2": summarize(ratios["torchrun", 2]),
            "launch_added_seconds": summarize(added),
        },
    )
    return 0


def _ratio(pair: tuple[float, float]) -> float:
    return pair[1] / pair[0]


def _environment_python(environments: Path) -> Path:
    """The interpreter of the environment that was built for the job."""
    for python in sorted(environments.glob("**/bin/python")):
        asked = subprocess.run(
            [str(python), "-c", "import torch"], check=False, capture_output=True, env=os.environ
        )
        if asked.returncode == 0:
            return python
    raise RuntimeError("the environment of the job was not found")


if __name__ == "__main__":
    raise SystemExit(main())
