"""How many trivial jobs per second?

200 jobs that do nothing (`python -c pass`) are submitted one after the other and awaited: Trainshed with its fork
server, Trainshed without it, and a real one-node Slurm, on the same machine, with as many jobs at a time as there
are cores. In turns, so that all of them meet the same weather.

    .venv/bin/python benchmarks/throughput.py [--jobs 200] [--rounds 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from measured_platform import MeasuredPlatform
from report import add_json_option, describe_machine, print_table, say, summarize, write_json
from slurm_cluster import SlurmCluster, SlurmMissing

from trainshed import Client

_LONGEST = 240.0
_LOOK_EVERY = 0.1


@dataclass
class Contender:
    """Somebody who runs many jobs; what was measured is in seconds."""

    name: str
    # Submits so many jobs, calls back after the last submit, returns when all have ended.
    run: Callable[[int, Callable[[], None]], None]
    submitted: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)

    def measure(self, jobs: int) -> None:
        """Run all jobs once."""
        start = time.monotonic()
        self.run(jobs, lambda: self.submitted.append(time.monotonic() - start))
        self.ended.append(time.monotonic() - start)


def run_on_platform(client: Client, jobs: int, submitted: Callable[[], None]) -> None:
    """Submit by the Python client, then look at the list of jobs until all have ended."""
    # The same Python as Slurm's jobs, by its name inside the sandbox.
    waiting = {
        client.submit({"command": "python -c pass", "flavor": "cpu.1", "network": "none"}).id
        for _ in range(jobs)
    }
    submitted()
    deadline = time.monotonic() + _LONGEST
    while waiting:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(waiting)} jobs have not ended within {_LONGEST:.0f} s")
        time.sleep(_LOOK_EVERY)
        # The oldest one that still waits is looked at first: jobs end roughly in their order.
        for job in client.jobs(limit=min(200, jobs)):
            if job.is_ended and job.id in waiting:
                waiting.remove(job.id)
                if job.phase != "Completed":
                    raise RuntimeError(f"{job.name} is {job.phase}: {client.explain(job.id)}")


def run_on_slurm(cluster: SlurmCluster, jobs: int, submitted: Callable[[], None]) -> None:
    """Submit by sbatch, then look at the queue until it is empty."""
    command = [
        "sbatch",
        "--parsable",
        "--cpus-per-task=1",
        "--output=/dev/null",
        f"--wrap={sys.executable} -c pass",
    ]
    for _ in range(jobs):
        subprocess.run(command, env=cluster.environment, stdout=subprocess.DEVNULL, timeout=60, check=True)
    submitted()
    deadline = time.monotonic() + _LONGEST
    while cluster.call("squeue", "-h", "-o", "%i").stdout:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the queue is not empty after {_LONGEST:.0f} s")
        time.sleep(_LOOK_EVERY)


def main() -> int:
    """Measure and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=8.0, help="begin no round after so long")
    parser.add_argument("--slurm-port", type=int, default=22100)
    parser.add_argument("--no-slurm", action="store_true")
    add_json_option(parser)
    options = parser.parse_args()
    machine = describe_machine()
    cores = os.cpu_count() or 1
    with ExitStack() as stack:
        platform = stack.enter_context(MeasuredPlatform())
        client = stack.enter_context(platform.client())

        def run_directly(jobs: int, submitted: Callable[[], None]) -> None:
            platform.close_fork_server()
            try:
                run_on_platform(client, jobs, submitted)
            finally:
                platform.open_fork_server()

        contenders = [
            Contender("Trainshed, fork server", lambda jobs, done: run_on_platform(client, jobs, done)),
            Contender("Trainshed, no fork server", run_directly),
        ]
        if not options.no_slurm:
            try:
                cluster = stack.enter_context(SlurmCluster(cpus=cores, port=options.slurm_port))
                contenders.append(
                    Contender("Slurm, sbatch", lambda jobs, done: run_on_slurm(cluster, jobs, done))
                )
            except SlurmMissing as fault:
                say(str(fault))
        say("warming up")
        for contender in contenders:
            contender.run(5, lambda: None)
        end = time.monotonic() + options.minutes * 60
        for number in range(options.rounds):
            if time.monotonic() > end:
                break
            for contender in contenders:
                contender.measure(options.jobs)
                rate = options.jobs / contender.ended[-1]
                say(f"round {number + 1} of {options.rounds}: {contender.name} {rate:.1f} jobs/s")
    rates = {one.name: [options.jobs / seconds for seconds in one.ended] for one in contenders}
    peer = summarize(rates[contenders[-1].name])["median"] if len(contenders) == 3 else None
    rows, results = [], {}
    for one in contenders:
        rate = summarize(rates[one.name])
        submits = summarize([seconds / options.jobs * 1000 for seconds in one.submitted])
        ratio = rate["median"] / peer if peer else None
        rows.append([one.name, rate["median"], rate["min"], rate["max"], submits["median"], ratio])
        results[one.name] = {"jobs_per_second": rate, "submit_ms": submits, "ratio_to_slurm": ratio}
    print_table(
        f"{options.jobs} trivial jobs, {cores} at a time, {len(contenders[0].ended)} rounds in turns",
        ["who", "jobs/s", "min", "max", "ms per submit", "x Slurm"],
        rows,
    )
    write_json(options.json, "throughput", machine, results)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
