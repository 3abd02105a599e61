"""`trainshed obs`: buckets and objects from the command line."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainshed.cli.obs_upkeep import gc, quota, verify
from trainshed.model.errors import Conflict, InvalidInput, NotFound
from trainshed.model.names import ObsUrl, check_bucket_name, parse_obs_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainshed.client.object_folders import FolderReport
    from trainshed.client.objects import ObjectClient

__all__ = ["obs"]

_SKIPPED_SHOWN = 10


@click.group()
def obs() -> None:
    """Buckets and objects: put data in and take results out.

    Places in the store are written obs://bucket/key; one that ends in / is a folder.
    """


for _command in (verify, gc, quota):
    obs.add_command(_command)


@obs.command()
@click.argument("bucket", metavar="OBS_URL")
def mb(bucket: str) -> None:
    """Make a bucket."""
    name = _bucket_name(bucket)
    with _client() as client:
        client.make_bucket(name)
    click.echo(f"Made obs://{name}/")


@obs.command()
@click.argument("bucket", metavar="OBS_URL")
@click.option("--force", is_flag=True, help="Remove all its objects first.")
def rb(bucket: str, force: bool) -> None:
    """Remove an empty bucket."""
    name = _bucket_name(bucket)
    with _client() as client:
        if force:
            client.delete_prefix(name, "")
        client.delete_bucket(name)
    click.echo(f"Removed obs://{name}/")


@obs.command()
@click.argument("folder", metavar="OBS_URL")
def mkdir(folder: str) -> None:
    """Make an empty folder."""
    url = parse_obs_url(folder).as_folder()
    if not url.key:
        raise InvalidInput(f"{folder} names no folder.", hint="To make a bucket, use: trainshed obs mb")
    with _client() as client:
        client.put_folder(url.bucket, url.key)
    click.echo(f"Made {url}")


@obs.command()
@click.argument("place", metavar="[OBS_URL]", required=False)
@click.option("-r", "--recursive", is_flag=True, help="All objects below, not only the first level.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ls(place: str | None, recursive: bool, as_json: bool) -> None:
    """List buckets, or what lies in a folder."""
    from trainshed.cli.object_listing import list_buckets, list_folder, print_entries

    with _client() as client:
        entries = list_folder(client, parse_obs_url(place), recursive) if place else list_buckets(client)
        print_entries(entries, as_json)


@obs.command()
@click.argument("place", metavar="OBS_URL")
def cat(place: str) -> None:
    """Write an object to standard output."""
    url = _object_url(place)
    with _client() as client:
        _write_to_stdout(client, url)


@obs.command()
@click.argument("place", metavar="OBS_URL")
@click.option("-r", "--recursive", is_flag=True, help="Remove a folder with all that lies in it.")
def rm(place: str, recursive: bool) -> None:
    """Remove an object, or a folder with -r."""
    url = parse_obs_url(place)
    with _client() as client:
        if recursive:
            folder = url.as_folder()
            count = client.delete_prefix(folder.bucket, folder.key)
            if not count:
                raise NotFound(
                    f"There is nothing in {folder}.", hint=f"See: trainshed obs ls obs://{url.bucket}/"
                )
            click.echo(f"Removed {_count(count, 'object')} below {folder}")
            return
        if not url.key:
            raise InvalidInput(
                f"{place} is a bucket.",
                hint=f"Remove it with: trainshed obs rb {place}, its content with: trainshed obs rm -r {place}",
            )
        if url.is_folder and len(client.list(url.bucket, url.key, limit=2).objects) > 1:
            raise Conflict(f"{url} is not empty.", hint=f"To remove all: trainshed obs rm -r {url}")
        if not client.delete(url.bucket, url.key):
            raise NotFound(
                f"There is no object {url}.", hint=f"See what is there: trainshed obs ls obs://{url.bucket}/"
            )
    click.echo(f"Removed {url}")


@obs.command()
@click.argument("source")
@click.argument("target")
@click.option("-r", "--recursive", is_flag=True, help="Copy what lies in a folder.")
def cp(source: str, target: str, recursive: bool) -> None:
    """Copy files to, from or within the object store.

    Either side is a local path, obs://bucket/key, or - for standard input or output. With -r, what lies in the
    source folder lies directly in the target folder afterwards.
    """
    with _client() as client:
        match _remote(source), _remote(target):
            case None, None:
                raise InvalidInput(
                    "Both sides are local.",
                    hint="Write one of them as obs://bucket/key.",
                    where=f"{source} {target}",
                )
            case None, ObsUrl() as to:
                _copy_in(client, source, to, recursive)
            case ObsUrl() as origin, None:
                _copy_out(client, origin, target, recursive)
            case ObsUrl() as origin, ObsUrl() as to:
                _copy_within(client, origin, to, recursive)


@obs.command()
@click.argument("source")
@click.argument("target")
@click.option("--delete", is_flag=True, help="Remove from the target what the source does not have.")
def sync(source: str, target: str, delete: bool) -> None:
    """Make a folder like another one; only what changed is moved."""
    from trainshed.cli.transfer_bar import TransferBar
    from trainshed.client.object_folders import copy_folder, download_folder, upload_folder

    with _client() as client:
        match _remote(source), _remote(target):
            case None, ObsUrl() as to:
                to = to.as_folder()
                _require_bucket(client, to.bucket)
                with TransferBar("Uploading") as bar:
                    report = upload_folder(
                        client, Path(source), to.bucket, to.key, meter=bar, only_changed=True, delete=delete
                    )
            case ObsUrl() as origin, None:
                origin = origin.as_folder()
                with TransferBar("Downloading") as bar:
                    report = download_folder(
                        client,
                        origin.bucket,
                        origin.key,
                        Path(target),
                        meter=bar,
                        only_changed=True,
                        delete=delete,
                    )
            case ObsUrl() as origin, ObsUrl() as to:
                origin, to = origin.as_folder(), to.as_folder()
                report = copy_folder(client, origin.bucket, origin.key, to.bucket, to.key, delete=delete)
            case _:
                raise InvalidInput("Both sides are local.", hint="Write one of them as obs://bucket/folder/.")
    _say_report(report, f"{source} -> {target}")


def _copy_in(client: ObjectClient, source: str, to: ObsUrl, recursive: bool) -> None:
    from trainshed.cli.transfer_bar import TransferBar
    from trainshed.client.object_folders import upload_folder

    if source == "-":
        if to.is_folder:
            raise InvalidInput(f"{to} is a folder.", hint="Standard input needs a key: obs://bucket/name.")
        with TransferBar("Uploading") as bar:
            entry = client.put_stream(to.bucket, to.key, sys.stdin.buffer, on_bytes=bar.move)
        click.echo(f"{_size(entry.size)} -> {to}")
        return
    path = Path(source)
    if not path.exists():
        raise NotFound(f"There is no file or folder {source}.", hint="Check the path.", code="no_such_file")
    _require_bucket(client, to.bucket)
    if path.is_dir():
        if not recursive:
            raise InvalidInput(f"{source} is a folder.", hint="Copy what lies in it with -r.")
        to = to.as_folder()
        with TransferBar("Uploading") as bar:
            report = upload_folder(client, path, to.bucket, to.key, meter=bar)
        _say_report(report, f"{source} -> {to}")
        return
    if to.is_folder:
        to = to.child(path.resolve().name)
    with TransferBar("Uploading") as bar:
        bar.plan(1, path.stat().st_size)
        entry = client.put_file(path, to.bucket, to.key, on_bytes=bar.move)
    click.echo(f"{_size(entry.size)} -> {to}")


def _copy_out(client: ObjectClient, origin: ObsUrl, target: str, recursive: bool) -> None:
    from trainshed.cli.transfer_bar import TransferBar
    from trainshed.client.object_folders import download_folder

    if target == "-":
        _write_to_stdout(client, _object_url(str(origin)))
        return
    if recursive or origin.is_folder:
        if not recursive:
            raise InvalidInput(f"{origin} is a folder.", hint="Copy what lies in it with -r.")
        origin = origin.as_folder()
        with TransferBar("Downloading") as bar:
            report = download_folder(client, origin.bucket, origin.key, Path(target), meter=bar)
        _say_report(report, f"{origin} -> {target}")
        return
    path = Path(target)
    if path.is_dir() or target.endswith(("/", "\\")):
        path = path / origin.key.rpartition("/")[2]
    with TransferBar("Downloading") as bar:
        if bar.wants_total:
            bar.plan(1, client.info(origin.bucket, origin.key).size)
        entry = client.get_file(origin.bucket, origin.key, path, on_bytes=bar.move)
    click.echo(f"{_size(entry.size)} -> {path}")


def _copy_within(client: ObjectClient, origin: ObsUrl, to: ObsUrl, recursive: bool) -> None:
    if recursive:
        origin, to = origin.as_folder(), to.as_folder()
        count = client.copy_prefix(origin.bucket, origin.key, to.bucket, to.key)
        if not count:
            raise NotFound(
                f"There is nothing in {origin}.", hint=f"See: trainshed obs ls obs://{origin.bucket}/"
            )
        click.echo(f"{_count(count, 'object')} -> {to}")
        return
    if origin.is_folder:
        raise InvalidInput(f"{origin} is a folder.", hint="Copy what lies in it with -r.")
    if to.is_folder:
        to = to.child(origin.key.rpartition("/")[2])
    entry = client.copy(origin.bucket, origin.key, to.bucket, to.key)
    click.echo(f"{_size(entry.size)} -> {to}")


def _write_to_stdout(client: ObjectClient, url: ObsUrl) -> None:
    for piece in client.stream(url.bucket, url.key):
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _say_report(report: FolderReport, what: str) -> None:
    parts = [f"{_count(report.files, 'file')}, {_size(report.bytes)}"]
    if report.folders:
        parts.append(_count(report.folders, "folder"))
    if report.unchanged:
        parts.append(f"{report.unchanged} unchanged")
    if report.deleted:
        parts.append(f"{report.deleted} removed")
    click.echo(f"{', '.join(parts)}: {what}")
    for path, reason in report.skipped[:_SKIPPED_SHOWN]:
        click.echo(f"Skipped {path}: {reason}", err=True)
    if len(report.skipped) > _SKIPPED_SHOWN:
        click.echo(f"... and {len(report.skipped) - _SKIPPED_SHOWN} more were skipped.", err=True)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _size(count: int) -> str:
    from trainshed.model.size import format_size

    return format_size(count)


def _remote(text: str) -> ObsUrl | None:
    return parse_obs_url(text) if text.startswith(("obs://", "s3://")) else None


def _object_url(text: str) -> ObsUrl:
    url = parse_obs_url(text)
    if url.is_folder:
        raise InvalidInput(f"{text} is a folder.", hint="Name an object in it.")
    return url


def _bucket_name(text: str) -> str:
    if "/" not in text:
        return check_bucket_name(text)
    url = parse_obs_url(text)
    if url.key:
        raise InvalidInput(f"{text} names more than a bucket.", hint=f"Write obs://{url.bucket}")
    return url.bucket


def _require_bucket(client: ObjectClient, name: str) -> None:
    """Tell before the first byte is sent, not after the last."""
    if not client.has_bucket(name):
        raise NotFound(
            f"There is no bucket '{name}'.",
            hint=f"Make it with: trainshed obs mb {name}",
            code="no_such_bucket",
        )


@contextmanager
def _client() -> Iterator[Any]:
    from trainshed.cli.connection import load_connection
    from trainshed.client.objects import ObjectClient

    connection = load_connection()
    if not connection.obs_url:
        raise InvalidInput(
            "The address of the object store is not known.",
            hint="Set TRAINSHED_OBS_URL, such as http://host:7481, or run `trainshed login` again.",
        )
    with ObjectClient(connection.obs_url, connection.token, ca=connection.ca) as client:
        yield client
