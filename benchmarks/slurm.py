"""What does the platform add to a Slurm cluster's own sbatch?

One real cluster, and in turns on it: raw sbatch, and jobs of the platform whose pool is that cluster.
  first line  from submit to the first line of the user's script; the difference is what the platform adds. Slurm's
              scheduler looks about once a second, so both submit at the same part of a second, another one in each round.
  throughput  200 jobs that do nothing, submitted one after the other and awaited; the ratio of the rates.

    .venv/bin/python benchmarks/slurm.py [--rounds 21] [--jobs 200] [--slots 2] [--json FILE]

All nodes are on this machine: what a runner costs on a cluster's node competes here with all other nodes, with
Slurm's own daemons and with the platform. So many slots as the machine has cores (the default) is nearest to a cluster.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import first_line
import throughput
from measured_platform import MeasuredPlatform
from report import add_json_option, describe_machine, print_table, say, summarize, write_json
from slurm_cluster import SlurmCluster

# Its multiples spread evenly over a second, however many there are.
_GOLDEN = 0.618
_POOL = '[pools.{name}]\nengine = "slurm"\npartition = "all"\nrun_as = "service"\npython = "{python}"\n'


def main() -> int:
    """Measure and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=21, help="of the first line; 0 leaves it out")
    parser.add_argument("--jobs", type=int, default=200, help="of the throughput; 0 leaves it out")
    parser.add_argument("--turns", type=int, default=1, help="of the throughput")
    parser.add_argument("--slots", type=int, default=os.cpu_count() or 1, help="jobs at a time")
    parser.add_argument("--port", type=int, default=22100)
    add_json_option(parser)
    options = parser.parse_args()
    machine = describe_machine()
    written: dict[str, list[float]] = {"sbatch": [], "platform": []}
    seen: dict[str, list[float]] = {"sbatch": [], "platform": []}
    rates: dict[str, list[float]] = {"sbatch": [], "platform": []}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-code-")))
        folder.chmod(0o755)
        (folder / "train.py").write_text(first_line.SCRIPT)
        cluster = stack.enter_context(SlurmCluster(cpus=options.slots, port=options.port, memory_mb=64_000))
        platform = stack.enter_context(
            MeasuredPlatform(
                settings=_POOL.format(name="cluster", python=os.path.realpath(sys.executable)),
                variables={"SLURM_CONF": cluster.environment["SLURM_CONF"]},
            )
        )
        client = stack.enter_context(platform.client())
        say("warming up")
        spec = {"pool": "cluster"}
        for _ in range(2):
            first_line.run_on_platform(client, folder, **spec)
            first_line.run_on_slurm(cluster, folder / "train.py")
        for number in range(options.rounds):
            for name in ("sbatch", "platform"):
                _wait_for_part(number * _GOLDEN)
                began = time.time()
                line, noticed = (
                    first_line.run_on_slurm(cluster, folder / "train.py")
                    if name == "sbatch"
                    else first_line.run_on_platform(client, folder, **spec)
                )
                written[name].append(line - began)
                seen[name].append(noticed - began)
            told = ", ".join(f"{name} {times[-1] * 1000:.0f} ms" for name, times in written.items())
            say(f"round {number + 1} of {options.rounds}: {told}")
        for _ in range(options.turns if options.jobs else 0):
            for name in ("sbatch", "platform"):
                began = time.monotonic()
                if name == "sbatch":
                    throughput.run_on_slurm(cluster, options.jobs, lambda: None)
                else:
                    throughput.run_on_platform(client, options.jobs, lambda: None, **spec)
                rates[name].append(options.jobs / (time.monotonic() - began))
                say(f"{options.jobs} jobs by {name}: {rates[name][-1]:.2f} jobs/s")
    _tell(options, machine, written, seen, rates)
    return 0


def _wait_for_part(part: float) -> None:
    """Wait until a second has come so far."""
    time.sleep((part - time.time()) % 1)


def _tell(
    options: argparse.Namespace,
    machine: dict[str, object],
    written: dict[str, list[float]],
    seen: dict[str, list[float]],
    rates: dict[str, list[float]],
) -> None:
    results: dict[str, object] = {}
    if options.rounds:
        added = [
            1000 * (platform - raw)
            for platform, raw in zip(written["platform"], written["sbatch"], strict=True)
        ]
        print_table(
            f"Milliseconds from submit to the first line, {options.rounds} rounds in turns",
            ["who", "written", "min", "max", "seen"],
            [
                [name, *(1000 * value for value in (statistics.median(times), min(times), max(times)))]
                + [1000 * statistics.median(seen[name])]
                for name, times in written.items()
            ],
        )
        middle, average = statistics.median(added), statistics.mean(added)
        say(f"added: {middle:.0f} ms in the middle, {average:.0f} ms on average")
        results["first_line_added_ms"] = summarize(added)
    if options.jobs:
        ratio = statistics.median(
            platform / raw for platform, raw in zip(rates["platform"], rates["sbatch"], strict=True)
        )
        print_table(
            f"{options.jobs} jobs that do nothing, {options.slots} at a time",
            ["who", "jobs/s"],
            [[name, statistics.median(found)] for name, found in rates.items()],
        )
        say(f"ratio: {ratio:.2f}")
        results["throughput_ratio"] = ratio
    write_json(options.json, "slurm", machine, results)


if __name__ == "__main__":
    raise SystemExit(main())
