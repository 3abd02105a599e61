"""How long from "submit" to the first line of the user's script?

Side by side, in turns: plain `python train.py`, Trainshed (over HTTP, by the Python client), `sbatch` on a real
one-node Slurm, and with --ray `ray job submit`. The script's first line is the time at which it was written, so
every way is measured by the same clock; "seen" is when somebody who waits for the line has it.

    .venv/bin/python benchmarks/first_line.py [--rounds 15] [--ray] [--json FILE]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from measured_platform import MeasuredPlatform, plain_environment
from ray_head import RayHead
from report import add_json_option, describe_machine, print_table, say, summarize, write_json
from slurm_cluster import SlurmCluster, SlurmMissing

from trainshed import Client

SCRIPT = "import time\nprint(repr(time.time()), flush=True)\n"


@dataclass
class Way:
    """One way to run the script, and what was measured of it, in seconds."""

    name: str
    # Returns when the line was written and when it was seen.
    run: Callable[[], tuple[float, float]]
    written: list[float] = field(default_factory=list)
    seen: list[float] = field(default_factory=list)

    def measure(self) -> None:
        """Run the script once."""
        start = time.time()
        written, seen = self.run()
        self.written.append(written - start)
        self.seen.append(seen - start)


def run_plain(script: Path) -> tuple[float, float]:
    """The script by itself, by the same interpreter."""
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seen = time.time()
    return float(line), seen


def run_on_platform(client: Client, folder: Path, **more: str) -> tuple[float, float]:
    """The script as a job: code folder checked and submitted, log followed."""
    job = client.submit({"code": str(folder), "boot": "train.py", "flavor": "cpu.1", **more})
    line, seen = "", 0.0
    for text in client.logs(job.id, follow=True).lines():
        if not line:
            line, seen = text, time.time()
    if not line:
        raise RuntimeError(f"the job wrote nothing: {client.explain(job.id)}")
    # The next round begins on an idle platform.
    ended = client.wait(job.id, timeout=60)
    if ended.phase != "Completed":
        raise RuntimeError(f"the job is {ended.phase}: {client.explain(job.id)}")
    return float(line), seen


def run_by_command(home: Path, folder: Path) -> tuple[float, float]:
    """The same by the `trainshed` command, whose own start counts as well."""
    command = [sys.executable, "-m", "trainshed.cli.main", "--home", str(home), "run", "--code", str(folder)]
    command += ["--boot", "train.py", "--flavor", "cpu.1", "--follow"]
    return _first_number(command)


def run_on_slurm(cluster: SlurmCluster, script: Path) -> tuple[float, float]:
    """The script by sbatch; its output file is looked at every millisecond."""
    output = cluster.folder / f"out-{time.monotonic_ns()}"
    command = [
        "sbatch",
        "--parsable",
        "--cpus-per-task=1",
        f"--output={output}",
        f"--wrap={sys.executable} {script}",
    ]
    job = cluster.call(*command).stdout.strip()
    deadline = time.monotonic() + 60
    while not (output.exists() and output.read_text().endswith("\n")):
        if time.monotonic() > deadline:
            raise RuntimeError("Slurm did not run the job within 60 s")
        time.sleep(0.001)
    seen = time.time()
    line = output.read_text()
    while cluster.call("squeue", "-h", "-j", job, check=False).stdout and time.monotonic() < deadline:
        time.sleep(0.05)
    return float(line), seen


def _first_number(command: list[str]) -> tuple[float, float]:
    """The first line of a command's output that is a time, and when it came."""
    written, seen = 0.0, 0.0
    rest: list[str] = []
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=plain_environment(),
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                value = float(line.split()[-1])
            except (ValueError, IndexError):
                rest.append(line)
                continue
            if not written and value > 1e9:
                written, seen = value, time.time()
    if not written:
        raise RuntimeError(f"{' '.join(command)} showed no line of the script:\n{''.join(rest)}")
    return written, seen


def main() -> int:
    """Measure and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--minutes", type=float, default=5.0, help="begin no round after so long")
    parser.add_argument("--slurm-port", type=int, default=22100)
    parser.add_argument("--no-slurm", action="store_true")
    parser.add_argument(
        "--ray", action="store_true", help="compare with Ray, installed into a throw-away environment"
    )
    parser.add_argument("--ray-port", type=int, default=22300)
    add_json_option(parser)
    options = parser.parse_args()
    machine = describe_machine()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-code-")))
        folder.chmod(0o755)
        script = folder / "train.py"
        script.write_text(SCRIPT)
        platform = stack.enter_context(MeasuredPlatform())
        client = stack.enter_context(platform.client())
        ways = [
            Way("plain python", lambda: run_plain(script)),
            Way("Trainshed, Python client", lambda: run_on_platform(client, folder)),
            Way("Trainshed, command line", lambda: run_by_command(platform.home.path, folder)),
        ]
        if not options.no_slurm:
            try:
                cluster = stack.enter_context(SlurmCluster(cpus=os.cpu_count() or 1, port=options.slurm_port))
                ways.append(Way("Slurm, sbatch", lambda: run_on_slurm(cluster, script)))
            except SlurmMissing as fault:
                say(str(fault))
        if options.ray:
            head = stack.enter_context(RayHead(options.ray_port))
            ways.append(Way("Ray, ray job submit", lambda: _first_number(head.submit_command(script))))
        say("warming up")
        for way in ways:
            way.run()
        end = time.monotonic() + options.minutes * 60
        for number in range(options.rounds):
            if time.monotonic() > end:
                break
            say(f"round {number + 1} of {options.rounds}")
            for way in ways:
                way.measure()
    plain = summarize(ways[0].written)["median"]
    rows, results = [], {}
    for way in ways:
        written, seen = summarize(way.written), summarize(way.seen)
        rows.append(
            [way.name]
            + [
                round(value * 1000)
                for value in (written["median"], written["p90"], written["median"] - plain)
            ]
            + [round(value * 1000) for value in (seen["median"], seen["p90"])]
        )
        results[way.name] = {"written": written, "seen": seen, "over_plain": written["median"] - plain}
    print_table(
        f"Submit to first line, milliseconds, {len(ways[0].written)} rounds in turns",
        ["way", "written", "p90", "over plain", "seen", "p90"],
        rows,
    )
    write_json(options.json, "first_line", machine, results)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
