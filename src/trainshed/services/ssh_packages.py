"""The packages of the ssh server, for nodes whose Python has none: this installation's own, in one file."""

from __future__ import annotations

import functools
import hashlib
import io
import os
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from trainshed.model.errors import NotFound
from trainshed.model.home import Home
from trainshed.runner.ssh.door import PACKAGES, find_package
from trainshed.runner.ssh.interpreter_tag import interpreter_tag
from trainshed.services.vault import write_once

__all__ = ["find_ssh_packages", "ssh_packages_version"]

_DISTRIBUTIONS = ("asyncssh", "cryptography", "cffi", "typing_extensions")
# The earliest moment that a zip file can hold.
_MOMENT = (1980, 1, 1, 0, 0, 0)


@functools.cache
def ssh_packages_version() -> str:
    """What the packages are, in few letters; empty where this installation has none to give."""
    words = []
    for name in _DISTRIBUTIONS:
        try:
            words.append(f"{name}=={metadata.version(name)}")
        except metadata.PackageNotFoundError:
            return ""
    return " ".join(words)


def find_ssh_packages(home: Home, tag: str) -> Path:
    """The packages as a zip file, if an interpreter such as `cpython-311-x86_64-linux-gnu` can load them."""
    if tag != interpreter_tag() or not ssh_packages_version():
        raise NotFound(
            f"The platform's ssh packages are for {interpreter_tag()}, not for {tag[:64]}.",
            hint="The node takes them from its package index, or from its own Python.",
            code="ssh_packages_missing",
        )
    digest = hashlib.sha256(f"{tag} {ssh_packages_version()}".encode()).hexdigest()[:16]
    path = home.run / f"ssh-packages-{digest}.zip"
    if not path.exists():
        write_once(path, _build())
        for old in home.run.glob("ssh-packages-*.zip"):
            if old != path:
                old.unlink(missing_ok=True)
    return path


def _build() -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as file:
        for name, path in sorted(_files()):
            entry = zipfile.ZipInfo(name, _MOMENT)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            file.writestr(entry, path.read_bytes())
    return archive.getvalue()


def _files() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        place = find_package(package)
        if place is None:
            raise NotFound(
                f"The platform itself lacks the package {package}.",
                hint="Install it with its server part: pip install '.[server]' in its checkout.",
                code="ssh_packages_missing",
            )
        if place.is_file():
            yield place.name, place
            continue
        for parent, folders, files in os.walk(place):
            folders[:] = [each for each in folders if each != "__pycache__"]
            for each in files:
                path = Path(parent) / each
                yield f"{place.name}/{path.relative_to(place).as_posix()}", path
