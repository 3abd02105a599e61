"""The platform's CA, and the certificate that it serves."""

from __future__ import annotations

import os
from pathlib import Path

import click

from trainshed.cli.connection import connection_options, load_connection
from trainshed.cli.host import find_home, require_linux
from trainshed.cli.presentation import json_option, print_fields, print_json
from trainshed.model.errors import NotFound
from trainshed.model.home import Home

__all__ = ["tls"]


@click.group()
def tls() -> None:
    """The platform's CA and certificate, for a platform that was started with --tls."""


@tls.command()
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="Write it to this file.")
def ca(out: Path | None) -> None:
    """Print the certificate of the CA that clients of this platform must trust.

    It is public: hand it to whoever uses the platform from another machine, over a way that they trust.
    """
    from trainshed.client.trust import read_authority

    own = Home(find_home(None)).tls_authority
    path = str(own) if own.exists() and connection_options().url is None else load_connection().ca
    if not path:
        raise NotFound(
            "This platform has no CA of its own.",
            hint="Its certificate is from a CA that systems know, or it speaks plain HTTP (see `trainshed up --tls`).",
            code="no_ca",
        )
    text = read_authority(path)
    if out is None:
        click.echo(text, nl=False)
        return
    out.write_text(text, "ascii")
    click.echo(f"{out}: give it to clients with --ca, TRAINSHED_CA or AWS_CA_BUNDLE.")


@tls.command()
@json_option
def show(as_json: bool) -> None:
    """Show the certificate of the platform on this machine: its names, its end, its fingerprint."""
    require_linux()
    from trainshed.daemon.tls import describe_certificate

    facts = describe_certificate(Home(find_home(None)), os.environ)
    if as_json:
        print_json(facts)
        return
    print_fields(
        [(name, ", ".join(value) if isinstance(value, list) else value) for name, value in facts.items()]
    )
