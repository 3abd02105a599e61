"""What does a platform cost that has nothing to do?

Resident memory of all its processes (RSS counts shared pages once per process, PSS counts each page once in all),
their CPU use over 20 idle seconds, and the CPU time of `trainshed --help`.

    .venv/bin/python benchmarks/idle.py [--seconds 20] [--json FILE]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from measured_platform import MeasuredPlatform
from report import add_json_option, describe_machine, print_table, say, write_json

_TICKS = os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> tuple[float, float]:
    """Resident and proportional memory of a process, in MB of 1024 x 1024 bytes."""
    sizes = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value = line.split(":")
        sizes[name] = int(value.split()[0]) / 1024
    return sizes["Rss"], sizes["Pss"]


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def help_cpu_seconds() -> float:
    """User and system time of one `trainshed --help`."""
    command = Path(sys.executable).with_name("trainshed")
    process = subprocess.Popen([str(command), "--help"], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError("trainshed --help failed")
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Measure and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    add_json_option(parser)
    options = parser.parse_args()
    machine = describe_machine()
    helps = [help_cpu_seconds() for _ in range(7)]
    with MeasuredPlatform() as platform:
        # A platform that has been used: one job has gone through every process.
        say("running one job, so that every process has done its work once")
        with platform.client() as client:
            job = client.submit({"command": "python -c pass", "flavor": "cpu.1"})
            list(client.logs(job.id, follow=True))
            client.wait(job.id, timeout=60)
        time.sleep(2)
        pids = platform.pids()
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        say(f"idle for {options.seconds:g} s")
        time.sleep(options.seconds)
        rows = []
        for name, pid in pids.items():
            share = (cpu_seconds(pid) - before[name]) / options.seconds * 100
            rows.append((name, *memory_mb(pid), share))
    total = ("all", *(sum(row[column] for row in rows) for column in (1, 2, 3)))
    print_table(
        f"An idle platform, over {options.seconds:g} s",
        ["process", "RSS MB", "PSS MB", "CPU %"],
        [*rows, total],
    )
    print_table(
        "trainshed --help, CPU-seconds of 7 runs",
        ["", "median", "max"],
        [("user + system", statistics.median(helps), max(helps))],
    )
    results = {
        "processes": {row[0]: {"rss_mb": row[1], "pss_mb": row[2], "cpu_percent": row[3]} for row in rows},
        "total": {"rss_mb": total[1], "pss_mb": total[2], "cpu_percent": total[3]},
        "help_cpu_seconds": {"median": statistics.median(helps), "max": max(helps)},
    }
    write_json(options.json, "idle", machine, results)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
