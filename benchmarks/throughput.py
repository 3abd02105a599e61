"""How many trivial jobs per second?

200 jobs that do nothing (`python -c pass`) are submitted one after the other and awaited, in turns, so that all
contenders meet the same weather: Trainshed with its fork server, Trainshed without it, and a real one-node Slurm.
Slurm comes twice: with as many jobs at a time as Trainshed runs (one per core), and with 32 at a time, because its
scheduler looks about once a second and few slots hold it back far below what it can do. (With few slots it gets
fewer jobs, or a round would take minutes; the rate is what counts.)

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

_LONGEST = 600.0
_LOOK_EVERY = 0.05
# Each of Slurm's looks is a process of its own, on the machine that is measured.
_SQUEUE_EVERY = 0.25
_MANY_SLOTS = 32


@dataclass
class Contender:
    """Somebody who runs many jobs; what was measured is per job, in seconds."""

    name: str
    # Submits so many jobs, calls back after the last submit, returns when all have ended.
    run: Callable[[int, Callable[[], None]], None]
    jobs: int
    submitted: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)

    def measure(self) -> float:
        """Run all jobs once; the rate."""
        start = time.monotonic()
        self.run(self.jobs, lambda: self.submitted.append((time.monotonic() - start) / self.jobs))
        self.ended.append((time.monotonic() - start) / self.jobs)
        return 1 / self.ended[-1]


def run_on_platform(client: Client, jobs: int, submitted: Callable[[], None], **more: str) -> None:
    """Submit by the Python client, then wait until all have ended."""
    job = {"command": "python -c pass", "flavor": "cpu.1", "network": "none", **more}
    names = [client.submit(job).id for _ in range(jobs)]
    submitted()
    deadline = time.monotonic() + _LONGEST
    # Jobs end roughly in their order: the last ones are awaited first, then the list must agree.
    for name in names[-8:]:
        client.wait(name, timeout=_LONGEST)
    while not all(found.is_ended for found in client.jobs(limit=min(jobs, 200))):
        _check(deadline)
        time.sleep(_LOOK_EVERY)
    for found in client.jobs(limit=min(jobs, 200)):
        if found.phase != "Completed":
            raise RuntimeError(f"{found.name} is {found.phase}: {client.explain(found.id)}")


def run_on_slurm(cluster: SlurmCluster, jobs: int, submitted: Callable[[], None]) -> None:
    """Submit by sbatch, then look at the queue until it is empty."""
    command = ["sbatch", "--parsable", "--cpus-per-task=1", "--output=/dev/null"]
    command.append(f"--wrap={sys.executable} -c pass")
    for _ in range(jobs):
        subprocess.run(command, env=cluster.environment, stdout=subprocess.DEVNULL, timeout=60, check=True)
    submitted()
    deadline = time.monotonic() + _LONGEST
    while cluster.call("squeue", "-h", "-o", "%i").stdout:
        _check(deadline)
        time.sleep(_SQUEUE_EVERY)


def _check(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise RuntimeError(f"not all jobs have ended within {_LONGEST:.0f} s")


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
            Contender(
                f"Trainshed, fork server, {cores} at a time",
                lambda jobs, done: run_on_platform(client, jobs, done),
                options.jobs,
            ),
            Contender(f"Trainshed, no fork server, {cores} at a time", run_directly, options.jobs),
        ]
        if not options.no_slurm:
            try:
                contenders += _enter_slurm(stack, options.slurm_port, cores, options.jobs)
            except SlurmMissing as fault:
                say(str(fault))
        say("warming up")
        for contender in contenders:
            contender.run(3, lambda: None)
        end = time.monotonic() + options.minutes * 60
        for number in range(options.rounds):
            if time.monotonic() > end:
                break
            for contender in contenders:
                rate = contender.measure()
                say(f"round {number + 1} of {options.rounds}: {contender.name}: {rate:.1f} jobs/s")
    _tell(contenders, machine, options)
    return 0


def _enter_slurm(stack: ExitStack, port: int, cores: int, jobs: int) -> list[Contender]:
    few = stack.enter_context(SlurmCluster(cpus=cores, port=port))
    many = stack.enter_context(SlurmCluster(cpus=_MANY_SLOTS, port=port + 20))
    return [
        Contender(
            f"Slurm, {cores} at a time",
            lambda count, done: run_on_slurm(few, count, done),
            min(jobs, 20 * cores),
        ),
        Contender(
            f"Slurm, {_MANY_SLOTS} at a time", lambda count, done: run_on_slurm(many, count, done), jobs
        ),
    ]


def _tell(contenders: list[Contender], machine: dict[str, object], options: argparse.Namespace) -> None:
    rates = {one.name: summarize([1 / seconds for seconds in one.ended]) for one in contenders}
    peers = [rates[one.name]["median"] for one in contenders[2:]]
    rows, results = [], {}
    for one in contenders:
        rate = rates[one.name]
        submit = summarize([seconds * 1000 for seconds in one.submitted])
        ratios = [rate["median"] / peer for peer in peers] or [None, None]
        rows.append([one.name, one.jobs, rate["median"], rate["min"], rate["max"], submit["median"], *ratios])
        results[one.name] = {
            "jobs": one.jobs,
            "jobs_per_second": rate,
            "submit_ms": submit,
            "ratio_to_slurm_with_the_same_slots": ratios[0],
            "ratio_to_slurm_with_many_slots": ratios[1],
        }
    print_table(
        f"Trivial jobs per second, {len(contenders[0].ended)} rounds in turns",
        ["who", "jobs", "jobs/s", "min", "max", "ms/submit", "x Slurm", f"x Slurm of {_MANY_SLOTS}"],
        rows,
    )
    write_json(options.json, "throughput", machine, results)


if __name__ == "__main__":
    raise SystemExit(main())
