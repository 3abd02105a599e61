"""`trainshed files`: what a job left in its working folders."""

from __future__ import annotations

from pathlib import Path

import click

from trainshed.cli.connection import open_client
from trainshed.cli.presentation import json_option, print_json, print_table
from trainshed.model.errors import NotFound
from trainshed.model.size import format_size

__all__ = ["files"]


@click.command()
@click.argument("job")
@click.argument("path", nargs=-1)
@click.option(
    "--to", "folder", type=click.Path(file_okay=False, path_type=Path), help="Download into this folder."
)
@click.option("--attempt", type=click.IntRange(1), help="Of this attempt in place of the last one.")
@json_option
def files(job: str, path: tuple[str, ...], folder: Path | None, attempt: int | None, as_json: bool) -> None:
    """List the files that a JOB left in its working folders, or download them.

    With a PATH only that file, or all below that folder. With --to they are downloaded.
    """
    with open_client() as client:
        found = client.get(job)
        listed = client.files(found.id, attempt)
        wanted = [
            file
            for file in listed
            if not path
            or any(file.path == one.strip("/") or file.path.startswith(one.strip("/") + "/") for one in path)
        ]
        if path and not wanted:
            raise NotFound(
                f"Job {found.name} left no such file.",
                hint=f"`trainshed files {found.name}` lists what there is.",
                where="PATH",
            )
        if folder is not None:
            for file in wanted:
                # Of paths that a job made up, only the parts that lead downward are followed.
                target = folder.joinpath(
                    *(part for part in file.path.split("/") if part not in ("", ".", ".."))
                )
                client.download_file(found.id, file.path, target, attempt=attempt)
                click.echo(f"{target}  {format_size(file.size)}", err=as_json)
    if as_json:
        print_json(wanted)
    elif folder is None:
        print_table(
            ("PATH", "SIZE"),
            [(file.path, format_size(file.size)) for file in wanted],
            elastic="PATH",
            empty=f"Job {found.name} left no files"
            + ("." if found.is_ended else " yet: they are brought home at the end."),
        )
