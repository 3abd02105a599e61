"""The batch script of one attempt, as sbatch takes it. Pure; nothing in it is secret."""

from __future__ import annotations

import math
from collections.abc import Iterable

from trainshed.engines.engine import AttemptLaunch, RemoteStart
from trainshed.model.errors import InvalidInput
from trainshed.model.pools import Pool

__all__ = ["job_name", "parse_job_name", "render_batch_script"]

_END = "END_OF_TRAINSHED_START"
# Beside the job's own time limit, which counts from its first process: fetching inputs and bringing results home, also
# to a platform that is away for an hour.
_MARGIN_SECONDS = 5400


def job_name(platform: str, job_id: str, attempt: int) -> str:
    """The name by which an attempt is found again in Slurm, whatever became of its number there."""
    return f"trainshed-{platform}-{job_id}-{attempt}"


def parse_job_name(platform: str, name: str) -> tuple[str, int] | None:
    """The job and the attempt that a name means; None when it is not one of this platform's."""
    start = f"trainshed-{platform}-"
    job_id, _, attempt = name.removeprefix(start).rpartition("-")
    if not name.startswith(start) or not job_id or not attempt.isdigit():
        return None
    return job_id, int(attempt)


def render_batch_script(
    launch: AttemptLaunch,
    pool: Pool,
    start: RemoteStart,
    platform: str,
    exclude: Iterable[str] = (),
    longest: int = 0,
    *,
    is_warned: bool = True,
) -> str:
    """The script: what the job asks for, then one runner on each of its machines.

    `longest` is for how many minutes the partition runs a job, 0 where it sets no limit. `is_warned` says that Slurm
    may send SIGTERM some time before it ends the job: steps hear that, the batch script does not.
    """
    wanted = launch.wanted
    if wanted is None:
        raise InvalidInput("An attempt for Slurm says what it wants.")
    if _END in start.script.splitlines():
        raise InvalidInput("The start script holds the word that ends it.")
    flavor = wanted.flavor
    cpus = max(1, math.ceil(flavor.cpus - 1e-6))
    options = [
        f"--job-name={job_name(platform, launch.job_id, launch.attempt)}",
        f"--nodes={wanted.nodes}",
        f"--ntasks={wanted.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={cpus}",
    ]
    if flavor.memory_mb:
        options.append(f"--mem={flavor.memory_mb}M")
    if flavor.devices:
        options.append(f"--gres={pool.gres[flavor.kind]}:{flavor.devices}")
    if wanted.seconds:
        minutes = math.ceil((wanted.seconds + wanted.grace + _MARGIN_SECONDS) / 60)
        # As much beyond the job's own limit as the partition gives; a limit that it does not give is Slurm's to refuse.
        own = math.ceil(wanted.seconds / 60)
        options.append(f"--time={max(own, min(minutes, longest)) if longest else minutes}")
    options += [
        f"--{name}={value}"
        for name, value in (("partition", pool.partition), ("account", pool.account), ("qos", pool.qos))
        if value
    ]
    left_out = ",".join(sorted(exclude))
    if left_out:
        options.append(f"--exclude={left_out}")
    # What ends an attempt ends it for good: another attempt is the platform's own decision, with a number of its own.
    options += ["--no-requeue", "--export=ALL", "--chdir=/", "--output=/dev/null", "--error=/dev/null"]
    options += pool.options
    lines = [
        "#!/bin/sh",
        *(f"#SBATCH {option}" for option in options),
        "",
        f"# Attempt {launch.attempt} of the job {launch.job_id}: one runner on each machine.",
        f"TRAINSHED_PYTHON={pool.python}",
        "export TRAINSHED_PYTHON",
        *(
            line
            for name, value in (("FOLDER", pool.node_folder), ("ADDRESSES", pool.addresses))
            if value
            for line in (f"TRAINSHED_NODE_{name}={value}", f"export TRAINSHED_NODE_{name}")
        ),
    ]
    if wanted.nodes == 1 and not is_warned:
        # The machine on which this script runs is all that there is: a step of its own would only take time.
        return "\n".join([*lines, start.script.rstrip("\n")]) + "\n"
    lines += [
        f"start=$(cat <<'{_END}'",
        start.script.rstrip("\n"),
        _END,
        ")",
        f"exec srun --nodes={wanted.nodes} --ntasks={wanted.nodes} --ntasks-per-node=1 --cpus-per-task={cpus} \\",
        # A node whose runner is gone without having said so takes the others with it: they would wait for it.
        '    --kill-on-bad-exit=1 --wait=0 --input=none /bin/sh -c "$start"',
    ]
    return "\n".join(lines) + "\n"
