"""`trainshed logs`."""

from __future__ import annotations

import click

from trainshed.cli.connection import open_client
from trainshed.cli.presentation import json_option, print_json
from trainshed.model.errors import NotFound

__all__ = ["logs"]


@click.command()
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--rank", type=click.IntRange(0), help="Only the log of this rank, byte for byte.")
@click.option("--stream", metavar="NAME", help="Only this log of --list, such as a launcher's workerlog.1.")
@click.option("--all", "every", is_flag=True, help="All ranks, each line behind [rank N].")
@click.option("--platform", "platform_only", is_flag=True, help="Only what the platform says.")
@click.option("--attempt", type=click.IntRange(1), help="Of this attempt in place of the last one.")
@click.option("--list", "list_streams", is_flag=True, help="List the logs that there are.")
@json_option
def logs(
    job: str,
    follow: bool,
    rank: int | None,
    stream: str | None,
    every: bool,
    platform_only: bool,
    attempt: int | None,
    list_streams: bool,
    as_json: bool,
) -> None:
    """Print or follow the log of a JOB: what the platform says, then rank 0.

    Logs of ranks go to the standard output as they were written, platform messages to the error stream.
    """
    from trainshed.cli.following import INTERRUPTED, follow_job, make_writer

    if sum((rank is not None, stream is not None, every, platform_only)) > 1:
        raise click.UsageError("Give only one of --rank, --stream, --all and --platform.")
    if follow and attempt is not None:
        raise click.UsageError("--follow is for the attempt that runs: leave --attempt out.")

    def wanted(name: str) -> bool:
        is_platform = name.endswith("platform")
        if rank is not None:
            return name == f"rank-{rank}"
        if stream is not None:
            return name == stream
        if platform_only:
            return is_platform
        return every or is_platform or name == "rank-0"

    with open_client() as client:
        found = client.get(job)
        if follow and not found.is_ended:
            status = follow_job(client, found, wanted=wanted)
            # The log was shown to its end, whatever the job made of it.
            click.get_current_context().exit(INTERRUPTED if status == INTERRUPTED else 0)
        streams = client.log_streams(found.id, attempt) if found.attempt or attempt else []
        if list_streams:
            if as_json:
                print_json(streams)
            for info in () if as_json else streams:
                click.echo(info.stream)
            return
        chosen = [info.stream for info in streams if wanted(info.stream)]
        if rank is not None and not chosen and streams:
            ranks = [info.stream.removeprefix("rank-") for info in streams if info.stream.startswith("rank-")]
            raise NotFound(
                f"The job has no rank {rank}.", hint=f"It has the ranks {', '.join(ranks)}.", where="--rank"
            )
        if stream is not None and not chosen:
            raise NotFound(
                f"The job has no log '{stream[:80]}'.",
                hint="It has " + (", ".join(info.stream for info in streams) or "none yet") + ".",
                where="--stream",
            )
        if not chosen:
            click.echo(f"Job {found.name} is {found.phase} and has no log yet.", err=True)
            return
        prefixed = sum(not name.endswith("platform") for name in chosen) > 1
        # What the platform says comes first: staging and installing happened before the training.
        for name in sorted(chosen, key=lambda name: not name.endswith("platform")):
            writer = make_writer(name, prefixed=prefixed)
            for piece in client.logs(found.id, name, attempt=attempt):
                writer.feed(piece)
            writer.close()
