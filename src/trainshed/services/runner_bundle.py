"""The runner as one file that any machine with Python can run: built from this very installation.

The same installation always gives the same bytes. The file unpacks itself beside itself and starts from there: parts
of the runner are mounted into jobs as files and folders, which cannot be done from inside an archive.
"""

from __future__ import annotations

import hashlib
import io
import os
import platform as machine_facts
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainshed.model.errors import NotFound
from trainshed.model.home import Home
from trainshed.runner.environment.interpreter import find_uv
from trainshed.runner.shims import shims_folder
from trainshed.services.vault import write_once

__all__ = ["Bundle", "build_bundle", "find_bundle", "find_old_bundle", "find_uv_for", "write_bundle"]

# The rooms that a runner is made of, and the modules beside them.
_ROOMS = ("model", "dialects", "store", "runner")
_MODULES = ("__init__.py", "durable.py")
# A job may wait in a cluster's queue for weeks, and wants the runner that its script names.
_KEPT_SECONDS = 60 * 24 * 3600.0
# The earliest moment that a zip file can hold.
_MOMENT = (1980, 1, 1, 0, 0, 0)
_MAIN = '''"""The entry of a runner bundle."""
import sys
if sys.version_info < (3, 11):
    sys.exit("trainshed: this Python is %d.%d; the runner needs 3.11 or newer" % sys.version_info[:2])
sys.dont_write_bytecode = True
from trainshed.runner.remote.unpack import unpack_and_run
sys.exit(unpack_and_run(sys.argv[0], sys.argv[1:]))
'''


@dataclass(frozen=True)
class Bundle:
    """A bundle on disk, and the SHA-256 of its bytes."""

    path: Path
    digest: str


def build_bundle() -> bytes:
    """The bundle's bytes."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as file:
        for name, data, mode in sorted(_files()):
            entry = zipfile.ZipInfo(name, _MOMENT)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = mode << 16
            file.writestr(entry, data)
    return b"#!/usr/bin/env python3\n" + archive.getvalue()


def write_bundle(target: Path) -> Bundle:
    """Write the bundle to a file."""
    data = build_bundle()
    target.write_bytes(data)
    target.chmod(0o755)
    return Bundle(target, hashlib.sha256(data).hexdigest())


def find_bundle(home: Home) -> Bundle:
    """The bundle of this installation, built when it is not there yet or when the installation has changed."""
    stamp = _stamp()
    for path in sorted(home.run.glob(f"runner-{stamp}-*.pyz")):
        return Bundle(path, path.stem.rpartition("-")[2])
    data = build_bundle()
    digest = hashlib.sha256(data).hexdigest()
    path = home.run / f"runner-{stamp}-{digest}.pyz"
    write_once(path, data)
    oldest = time.time() - _KEPT_SECONDS
    for old in home.run.glob("runner-*.pyz"):
        if old.stat().st_mtime < oldest and not old.name.startswith(f"runner-{stamp}-"):
            old.unlink(missing_ok=True)
    return Bundle(path, digest)


def find_old_bundle(home: Home, digest: str) -> Bundle:
    """The bundle that a job was submitted with: it may have waited in a queue while the platform was updated."""
    current = find_bundle(home)
    if digest in ("", current.digest):
        return current
    for path in home.run.glob("runner-*.pyz"):
        if path.stem.rpartition("-")[2] == digest:
            return Bundle(path, digest)
    raise NotFound(
        "The platform does not have that runner any more.",
        hint="Stop the job and submit it again: it was submitted by a much older version.",
        code="bundle_gone",
    )


def find_uv_for(machine: str) -> Path:
    """The platform's own uv, if it runs on such a machine."""
    if machine != machine_facts.machine():
        raise NotFound(
            f"The platform's uv is for {machine_facts.machine()}, not for {machine[:32]}.",
            hint="Install uv on the nodes, so that it is on their PATH.",
            code="uv_missing",
        )
    return find_uv()


def _package() -> Path:
    return Path(__file__).resolve().parents[1]


def _files() -> Iterator[tuple[str, bytes, int]]:
    yield "__main__.py", _MAIN.encode(), 0o644
    package, shims = _package(), shims_folder()
    for module in _MODULES:
        yield f"trainshed/{module}", (package / module).read_bytes(), 0o644
    for room in _ROOMS:
        yield from _folder(package / room, f"trainshed/{room}")
    yield from _folder(shims, "trainshed/_shims")


def _folder(folder: Path, name: str) -> Iterator[tuple[str, bytes, int]]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(
            each for each in folders if each != "__pycache__" and not each.endswith(".egg-info")
        )
        for each in sorted(files):
            if each.endswith((".pyc", ".pyo")):
                continue
            path = Path(parent) / each
            # Some of the shims are programs.
            mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            yield f"{name}/{path.relative_to(folder).as_posix()}", path.read_bytes(), mode


def _stamp() -> str:
    """A short digest of the sizes and times of all files that the bundle is made of."""
    digest = hashlib.sha256()
    for folder in (*(_package() / room for room in _ROOMS), shims_folder()):
        for parent, folders, files in os.walk(folder):
            folders.sort()
            for each in sorted(files):
                if not each.endswith(".pyc"):
                    facts = os.stat(os.path.join(parent, each))
                    digest.update(f"{parent}/{each} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:12]
