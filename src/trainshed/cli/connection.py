"""The platform that a command talks to: the options before the command, the environment, the saved file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from trainshed.client.connection import Connection, connection_file, find_connection, save_connection

if TYPE_CHECKING:
    from trainshed.client import Client

__all__ = [
    "Connection",
    "ConnectionOptions",
    "connection_file",
    "connection_options",
    "load_connection",
    "open_client",
    "save_connection",
]


@dataclass(frozen=True)
class ConnectionOptions:
    """What was given before the command: `trainshed --url URL --home DIR --ca FILE COMMAND`."""

    url: str | None = None
    home: str | None = None
    ca: str | None = None


def connection_options() -> ConnectionOptions:
    """The options of the command line that runs at the moment."""
    context = click.get_current_context(silent=True)
    given = context.find_root().obj if context is not None else None
    return given if isinstance(given, ConnectionOptions) else ConnectionOptions()


def load_connection() -> Connection:
    """The connection of this command line; without one, an error that says how to get one."""
    options = connection_options()
    return find_connection(options.url, None, options.home, ca=options.ca)


def open_client() -> Client:
    """A client of the platform that this command line talks to."""
    from trainshed.client import Client

    connection = load_connection()
    return Client(connection.url, connection.token, ca=connection.ca)
