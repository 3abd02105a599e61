"""`trainshed run` and `trainshed submit`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainshed.cli.connection import open_client
from trainshed.cli.presentation import print_json, warn
from trainshed.client.job_file import locate_field, read_job_file
from trainshed.model.errors import TrainshedError
from trainshed.model.size import count_files, format_size

if TYPE_CHECKING:
    from trainshed.client import Client
    from trainshed.client.code_folder import CodeFolder

__all__ = ["apply_changes", "build_job", "run", "submit"]


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"'{text}' is not NAME=VALUE.")
    return name, value


def _ending_options(command: Any) -> Any:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the job as JSON."),
        click.option(
            "--set",
            "changes",
            type=_pair,
            multiple=True,
            metavar="FIELD=VALUE",
            help="Any field of the job file, also parameters.epochs=3; goes before what is said elsewhere.",
        ),
        click.option(
            "--dry-run", is_flag=True, help="Print the job file and the launch plan; submit nothing."
        ),
        click.option(
            "-f", "--follow", is_flag=True, help="Follow the job; exit with 0 if it completes, else 1."
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.option("--name", help="The job's name, unique in the workspace; made up if left out.")
@click.option("--code", metavar="DIR", help="The code: a local folder (uploaded), or obs://bucket/folder/.")
@click.option("--boot", metavar="FILE", help="The file in it that starts the training, .py or .sh.")
@click.option("--command", metavar="TEXT", help="A shell command to run in place of a boot file.")
@click.option("--dialect", help="Whose conventions the script was written for (see docs/dialects.md).")
@click.option("--engine", help="The preset environment (see `trainshed engines`).")
@click.option(
    "--param",
    "parameters",
    type=_pair,
    multiple=True,
    metavar="NAME=VALUE",
    help="Passed to the script as --NAME=VALUE.",
)
@click.option(
    "--input",
    "inputs",
    type=_pair,
    multiple=True,
    metavar="NAME=URL",
    help="obs:// folder or object; its local path is passed as --NAME=PATH.",
)
@click.option(
    "--output",
    "outputs",
    type=_pair,
    multiple=True,
    metavar="NAME=URL",
    help="obs:// folder; a local folder is passed as --NAME=PATH and uploaded at the end.",
)
@click.option("--flavor", help="What each node gets (see `trainshed flavors`).")
@click.option("--nodes", type=int, help="How many nodes.")
@click.option("--pool", help="Which machines (see `trainshed nodes`).")
@click.option(
    "--env", "environment", type=_pair, multiple=True, metavar="NAME=VALUE", help="An environment variable."
)
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A variable that is encrypted and masked; without a value it is taken from this environment.",
)
@click.option("--network", type=click.Choice(["none", "platform", "open"]), help="What the job can reach.")
@click.option("--priority", type=int, help="Higher goes first, -100 to 100.")
@click.option("--time-limit", metavar="TIME", help="The job is stopped after it: 90s, 45m, 2h.")
@click.option("--restarts", type=int, help="Starts again after failures that were not its own.")
@click.option("--hang-after", metavar="TIME", help="The job fails when nothing happens for so long: 30m, 2h.")
@click.option("--idle-after", metavar="TIME", help="The job counts as idle when it uses nothing for so long.")
@click.option(
    "--checkpoints", metavar="URL", help="obs:// folder of checkpoints: there at the start, kept at the end."
)
@click.option("--log-url", metavar="URL", help="obs:// folder to which the logs are written as well.")
@click.option("--description", help="Free text.")
@_ending_options
def run(
    follow: bool, dry_run: bool, as_json: bool, changes: tuple[tuple[str, str], ...], **options: Any
) -> None:
    """Run a training job made from options.

    \b
    trainshed run --code ./examples/digits-numpy --boot train.py \\
        --input data_url=obs://datasets/digits/ --output train_url=obs://results/run1/ \\
        --param epochs=3 --flavor cpu.1 --follow
    """
    job = apply_changes(build_job(options, dict(os.environ)), changes)
    _execute(job, None, follow=follow, dry_run=dry_run, as_json=as_json)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--pool", help="Which machines, whatever the file says (see `trainshed nodes`).")
@_ending_options
def submit(
    file: Path,
    pool: str | None,
    follow: bool,
    dry_run: bool,
    as_json: bool,
    changes: tuple[tuple[str, str], ...],
) -> None:
    """Run the training job that a YAML (or JSON) FILE describes.

    Its code folder is meant relative to the file; secrets without a value come from this environment.
    """
    job = apply_changes(read_job_file(file), (*((("pool", pool),) if pool else ()), *changes))
    _execute(job, file, follow=follow, dry_run=dry_run, as_json=as_json)


def build_job(options: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    """The job that the options of `trainshed run` describe; what was not given is left out."""
    job: dict[str, Any] = {}
    for name, value in options.items():
        if value is None or value == ():
            continue
        if name == "secrets":
            job[name] = {part.partition("=")[0]: _secret(part, environment) for part in value}
        elif name == "parameters":
            job[name] = {key: _scalar(text) for key, text in _unique(name, value)}
        elif name in ("inputs", "outputs", "environment"):
            job[name] = dict(_unique(name, value))
        else:
            job[name] = value
    return job


def apply_changes(job: dict[str, Any], changes: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """The job with fields set from the command line: `nodes=2`, `parameters.epochs=3`; values are read as YAML."""
    import yaml

    changed = dict(job)
    for field, text in changes:
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            value = text
        name, dot, label = field.partition(".")
        if not dot:
            changed[name] = value
            continue
        table = changed.get(name) or {}
        if not isinstance(table, dict):
            raise click.UsageError(f"'{name}' has no names below it: write --set {name}=VALUE.")
        changed[name] = {**table, label: value}
    return changed


def _unique(what: str, pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise click.UsageError(f"'{name}' is given twice among the {what}.")
        seen.add(name)
    return pairs


def _scalar(text: str) -> str | int | float:
    """A number where it is written as the script will see it again; else the text as it is."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if str(value) == text and text not in ("nan", "inf", "-inf"):
            return value
    return text


def _secret(part: str, environment: dict[str, str]) -> str:
    name, equals, value = part.partition("=")
    if equals:
        return value
    if name not in environment:
        raise click.UsageError(f"The secret '{name}' has no value and is not set in the environment.")
    return environment[name]


def _execute(job: dict[str, Any], file: Path | None, *, follow: bool, dry_run: bool, as_json: bool) -> None:
    with open_client() as client:
        try:
            if dry_run:
                _print_dry_run(client, job, as_json)
                return
            found = client.submit(job, on_scan=_tell_upload)
        except TrainshedError as fault:
            raise _placed(fault, file) from None
        if as_json and not follow:
            print_json(found)
        elif not follow:
            click.echo(f"Job {found.name} ({found.id[:8]}) was submitted.")
            click.echo(f"Follow it: trainshed logs {found.name} -f", err=True)
        if follow:
            from trainshed.cli.following import follow_job

            click.get_current_context().exit(follow_job(client, found, as_json=as_json))


def _placed(fault: TrainshedError, file: Path | None) -> TrainshedError:
    """The fault with the line of the job file that it is about."""
    if file is None or not fault.where or not fault.where.replace(".", "").replace("_", "").isalnum():
        return fault
    fault.where = locate_field(file, fault.where)
    return fault


def _tell_upload(code: CodeFolder, uploads: bool) -> None:
    from trainshed.client.code_folder import LARGE_BYTES

    if not uploads:
        return
    click.echo(f"Uploading the code: {count_files(len(code.files))}, {format_size(code.size)}.", err=True)
    if code.size > LARGE_BYTES:
        names = ", ".join(f"{file.path} ({format_size(file.size)})" for file in code.largest())
        warn(f"That is a lot for code: {names}.")
        warn("Data belongs into the object store (`trainshed obs cp`); .trainshedignore leaves files out.")


def _print_dry_run(client: Client, job: dict[str, Any], as_json: bool) -> None:
    answer = client.dry_run(job, on_scan=_tell_upload)
    if as_json:
        print_json(answer)
        return
    import yaml

    from trainshed.cli.dry_run import render_plan

    shown = dict(job)
    if "secrets" in shown:
        # Without values: `trainshed submit` takes them from the environment.
        shown["secrets"] = dict.fromkeys(shown["secrets"])
    click.echo("# The job file (trainshed submit FILE)")
    click.echo(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True), nl=False)
    script = answer.pop("script", "")
    click.echo("---\n# What would run; values of secrets are left out, --json shows every process in full")
    click.echo(render_plan(answer), nl=False)
    if script:
        click.echo("---\n# The batch script that Slurm would get")
        click.echo(script, nl=False)
