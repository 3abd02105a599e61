"""Folders of the machines themselves as inputs: how they are written, and which ones are allowed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import PurePosixPath
from urllib.parse import quote, unquote, urlsplit

from trainshed.model.errors import InvalidInput

__all__ = ["check_host_folders", "find_allowed", "host_url", "is_host_url", "parse_host_url"]

_SCHEME = "file://"


def is_host_url(text: str) -> bool:
    """Whether an input names a folder of the machine instead of one of the store."""
    return text.startswith(_SCHEME)


def parse_host_url(text: str, where: str = "") -> str:
    """The absolute path in `file:///data/shared/x/`."""
    try:
        parts = urlsplit(text)
        path = unquote(parts.path, errors="strict")
    except ValueError:
        parts, path = urlsplit(_SCHEME), ""
    is_plain = path.startswith("/") and path != "/" and "\0" not in path and ".." not in path.split("/")
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment or not is_plain:
        raise InvalidInput(
            f"'{text[:200]}' is not the URL of a folder of the machine.",
            hint="Write it as file:///absolute/folder/.",
            where=where,
        )
    return os.path.normpath(path)


def host_url(path: str) -> str:
    """The URL of a folder of the machine."""
    return f"{_SCHEME}{quote(path)}/"


def find_allowed(path: str, allowed: Iterable[str]) -> tuple[str, tuple[str, ...]] | None:
    """Which allowed folder a path lies in, and the parts of the way down from there; None if in none."""
    for folder in allowed:
        try:
            return folder, PurePosixPath(path).relative_to(folder).parts
        except ValueError:
            continue
    return None


def check_host_folders(value: object, where: str) -> tuple[str, ...]:
    """The setting `host_folders`: a list of absolute folders; in a variable they are divided by colons."""
    folders = value.split(":") if isinstance(value, str) else value
    if not isinstance(folders, list | tuple) or not all(isinstance(folder, str) for folder in folders):
        raise InvalidInput(
            "The setting 'host_folders' is a list of folders.",
            hint='Write it as host_folders = ["/data/shared"].',
            where=where,
        )
    for folder in folders:
        if folder and (not folder.startswith("/") or os.path.normpath(folder) in ("/", "//")):
            raise InvalidInput(
                f"'{folder[:200]}' cannot be offered to jobs.",
                hint="Name absolute folders, and not the whole machine.",
                where=where,
            )
    return tuple(os.path.normpath(folder) for folder in folders if folder)
