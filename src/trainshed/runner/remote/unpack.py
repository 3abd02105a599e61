"""A bundle unpacks itself beside itself, once, and goes on from there."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import zipfile
from pathlib import Path

__all__ = ["unpack", "unpack_and_run"]

_MEMO_SECONDS = 60


def unpack_and_run(archive: str, arguments: list[str]) -> int:
    """Unpack the bundle and start the runner from there. Returns only where that fails."""
    try:
        folder = unpack(Path(archive))
    except OSError as error:
        sys.stderr.write(f"trainshed: the runner cannot be unpacked: {error}\n")
        return 82
    start(folder, arguments)
    return 82


def start(folder: Path, arguments: list[str]) -> None:
    """Become the runner."""
    variables = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    os.execve(
        sys.executable, [sys.executable, "-S", "-m", "trainshed.runner.remote.main", *arguments], variables
    )


def unpack(archive: Path) -> Path:
    """The folder with the bundle's files, named by their digest. Many may do this at once."""
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    folder = archive.absolute().with_name(f"runner-{digest[:16]}")
    if (folder / "complete").exists():
        # What is used stays: others look at the time.
        for used in (archive, folder):
            os.utime(used)
        return folder
    fresh = folder.with_name(f".{folder.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with zipfile.ZipFile(archive) as file:
            file.extractall(fresh)
            for entry in file.infolist():
                # What is a program stays one.
                os.chmod(fresh / entry.filename, entry.external_attr >> 16 & 0o777)
        _compile(fresh, folder)
        _write_memo(fresh)
        (fresh / "complete").touch()
        try:
            fresh.rename(folder)
        except OSError:
            # Another one was quicker, or was killed in the middle of it.
            if not (folder / "complete").exists():
                shutil.rmtree(folder, ignore_errors=True)
                fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _write_memo(fresh: Path) -> None:
    """The same for the methods of dataclasses, which are no part of compiled modules. Nothing depends on it."""
    import contextlib
    import subprocess

    program = "import sys; sys.path.insert(0, sys.argv[1]); from trainshed.runner.remote.method_memo import write_memo"
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            [sys.executable, "-I", "-S", "-B", "-c", f"{program}; write_memo(sys.argv[1])", str(fresh)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_MEMO_SECONDS,
            check=False,
        )


def _compile(fresh: Path, folder: Path) -> None:
    """Compile the modules now, once: a runner that had to do so itself would start a second later."""
    import compileall
    import re
    from py_compile import PycInvalidationMode

    compileall.compile_dir(
        fresh / "trainshed",
        # What jobs find on their path is not the runner's.
        rx=re.compile("/_shims/"),
        stripdir=str(fresh),
        prependdir=str(folder),
        quiet=2,
        # Nobody changes these files: their times need not be compared.
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
    )
