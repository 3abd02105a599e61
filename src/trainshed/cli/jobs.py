"""Commands about jobs that exist: list, show, explain, stop, rerun, delete."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from trainshed.cli.connection import open_client
from trainshed.cli.presentation import (
    format_age,
    format_duration,
    format_time,
    json_option,
    print_fields,
    print_json,
    print_table,
    style_phase,
)
from trainshed.model.phase import Phase
from trainshed.model.size import count_files, format_size

if TYPE_CHECKING:
    from trainshed.client.results import Attempt, Job

__all__ = ["delete", "explain", "jobs", "rerun", "show", "stop"]


@click.command()
@click.option(
    "--phase", type=click.Choice([phase.value for phase in Phase], case_sensitive=False), help="Only these."
)
@click.option(
    "-n", "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many."
)
@click.option("--before", metavar="JOB_ID", help="Continue behind this job of the list.")
@json_option
def jobs(phase: str | None, limit: int, before: str | None, as_json: bool) -> None:
    """List jobs, newest first."""
    with open_client() as client:
        found = client.jobs(phase, limit, before)
    if as_json:
        print_json(found)
        return
    print_table(
        ("ID", "NAME", "PHASE", "DETAIL", "FLAVOR", "AGE", "TIME"),
        [
            (
                job.id[:8],
                job.name,
                job.phase,
                job.detail,
                job.flavor
                + (f" x{job.nodes}" if job.nodes > 1 else "")
                + (" REHEARSAL" if job.rehearsal else ""),
                format_age(job.created_at),
                _run_time(job),
            )
            for job in found
        ],
        elastic="NAME",
        empty="There are no jobs"
        + (f" that are {phase}." if phase else " yet. `trainshed run --help` starts one."),
    )
    if len(found) == limit:
        click.echo(f"There may be more: trainshed jobs --before {found[-1].id}", err=True)


def _run_time(job: Job) -> str:
    if job.started_at is None:
        return ""
    return format_duration((job.ended_at or time.time()) - job.started_at)


def _engine_of(job: Job) -> str:
    """The engine that was asked for, and the one that runs where it is another."""
    runs = str((job.environment or {}).get("engine") or "")
    # A spec does not repeat what is the default.
    asked = str(job.spec.get("engine") or runs)
    if not runs or runs.lower() == asked.lower():
        return asked
    pins = (job.environment or {}).get("packages") or ()
    version = next((pin for pin in pins if pin.split("==")[0].removesuffix("-cpu").endswith(runs)), "")
    return f"{asked}, runs as {runs}" + (f" ({version})" if version else "")


@click.command()
@click.argument("job")
@json_option
def show(job: str, as_json: bool) -> None:
    """Show one JOB: what it is, how it went, its story."""
    with open_client() as client:
        found = client.get(job)
        if as_json:
            print_json(found)
            return
        events = client.events(found.id)
        attempts = client.attempts(found.id) if found.attempt > 1 else []
        left = client.files(found.id) if found.is_ended and found.attempt else []
    spec = found.spec
    ending, wait = found.ending or {}, found.wait or {}
    print_fields(
        [
            ("Job", found.name),
            ("Id", found.id),
            ("Phase", style_phase(found.phase) + (f" ({found.detail})" if found.detail else "")),
            ("Why", str(ending.get("message") or wait.get("reason") or "")),
            ("Next", str(ending.get("hint") or wait.get("hint") or "")),
            ("Owner", found.owner),
            ("Runs", str(spec.get("command") or spec.get("boot") or "")),
            ("Code", str(spec.get("code") or "")),
            ("Engine", _engine_of(found)),
            ("Flavor", found.flavor + (f" x {found.nodes} nodes" if found.nodes > 1 else "")),
            ("Rehearsal", "yes: the devices are pretend ones" if found.rehearsal else ""),
            (
                "Parameters",
                "\n".join(f"{key}={value}" for key, value in (spec.get("parameters") or {}).items()),
            ),
            ("Inputs", "\n".join(f"{key}={value}" for key, value in (spec.get("inputs") or {}).items())),
            ("Outputs", "\n".join(f"{key}={value}" for key, value in (spec.get("outputs") or {}).items())),
            ("Submitted", format_time(found.created_at)),
            ("Started", format_time(found.started_at)),
            ("Ended", format_time(found.ended_at)),
            ("Time", _run_time(found)),
            ("Attempts", "\n".join(_tell_attempt(attempt) for attempt in attempts)),
            (
                "Left behind",
                f"{count_files(len(left))}, {format_size(sum(file.size for file in left))}: `trainshed files {found.name}`"
                if left
                else "",
            ),
        ]
    )
    if events:
        click.echo()
        for event in events:
            mark = "" if event.level == "info" else f"{event.level}: "
            click.echo(f"{format_time(event.time)}  {mark}{event.message}")


def _tell_attempt(attempt: Attempt) -> str:
    ending = attempt.ending or {}
    if not ending:
        return f"{attempt.attempt}: {attempt.state}, in {attempt.engine}"
    how = str(ending.get("code") or ending.get("outcome"))
    took = ""
    if attempt.started_at is not None and attempt.ended_at is not None:
        took = f" after {format_duration(attempt.ended_at - attempt.started_at)}"
    message = str(ending.get("message") or "")
    return f"{attempt.attempt}: {how}{took}" + (f": {message}" if message else "")


@click.command()
@click.argument("job")
@json_option
def explain(job: str, as_json: bool) -> None:
    """Say why a JOB waits or failed, and the next step."""
    with open_client() as client:
        found = client.explain(job)
    if as_json:
        print_json(found)
        return
    click.echo(found.summary)
    for fact in found.facts:
        click.echo(f"  - {fact}")
    if found.last_lines:
        click.echo(f"The end of the log of {found.stream}:")
        for line in found.last_lines:
            click.echo(f"  | {line}")
    if found.hint:
        click.echo(f"Next:  {found.hint}")


@click.command()
@click.argument("job")
@click.option("--reason", default="", help="Why; it stands in the job's story.")
@click.option("--wait", is_flag=True, help="Return when the job has ended.")
@json_option
def stop(job: str, reason: str, wait: bool, as_json: bool) -> None:
    """Stop a JOB: it gets SIGTERM, and SIGKILL after its grace period."""
    with open_client() as client:
        found = client.stop(job, reason)
        if wait:
            found = client.wait(found.id)
    if as_json:
        print_json(found)
    else:
        ended = Phase(found.phase).is_terminal
        asked = "" if ended else " and was asked to stop"
        click.echo(f"Job {found.name} is {style_phase(found.phase)}{asked}.")


@click.command()
@click.argument("job")
@click.argument("duration")
@json_option
def hold(job: str, duration: str, as_json: bool) -> None:
    """Hold a JOB open for a DURATION (30m, 2h) from now, or from when its training ends; 0 lets it go at once."""
    from trainshed.model.job_spec import parse_duration, render_duration

    try:
        seconds = parse_duration(duration)
    except ValueError as fault:
        raise click.BadParameter(str(fault), param_hint="DURATION") from None
    with open_client() as client:
        found = client.hold(job, seconds)
    if as_json:
        print_json(found)
    else:
        held = (
            f"is held open for {render_duration(seconds)}"
            if seconds
            else "is let go once its training has ended"
        )
        click.echo(f"Job {found.name} {held}.")


@click.command()
@click.argument("job")
@click.option("--name", default="", help="The new job's name; made up if left out.")
@click.option("-f", "--follow", is_flag=True, help="Follow the new job.")
@json_option
def rerun(job: str, name: str, follow: bool, as_json: bool) -> None:
    """Run a JOB again: the same code snapshot, environment, inputs and settings."""
    with open_client() as client:
        found = client.rerun(job, name)
        if follow:
            from trainshed.cli.following import follow_job

            click.get_current_context().exit(follow_job(client, found, as_json=as_json))
    if as_json:
        print_json(found)
    else:
        click.echo(f"Job {found.name} ({found.id[:8]}) was submitted.")


@click.command()
@click.argument("job", nargs=-1, required=True)
def delete(job: tuple[str, ...]) -> None:
    """Delete each JOB (it must have ended) with its logs and metrics. Outputs in the store stay."""
    with open_client() as client:
        for ref in job:
            found = client.get(ref)
            client.delete(found.id)
            click.echo(f"Job {found.name} was deleted.")
