"""The Python interpreters of this machine, and the uv program that builds environments with them."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from trainshed.model.errors import HostUnfit, NotFound

__all__ = ["Interpreter", "find_interpreter", "find_uv"]

_SECONDS = 20
_QUESTION = """
import json, os, platform, sys, sysconfig
print(json.dumps([os.path.realpath(getattr(sys, "_base_executable", sys.executable)), sys.base_prefix,
    platform.python_version(), sys.implementation.name, sysconfig.get_platform() + "-" + "-".join(platform.libc_ver())]))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python of this machine. `prefix` holds its library and must be visible where it runs."""

    executable: Path
    prefix: Path
    version: str
    implementation: str
    platform: str

    @property
    def minor(self) -> str:
        """The version as `3.11`."""
        return ".".join(self.version.split(".")[:2])

    @property
    def bundled_wheels(self) -> Path:
        """Where this Python keeps the pip that it was released with (some distributions remove it)."""
        return self.prefix / "lib" / f"python{self.minor}" / "ensurepip" / "_bundled"


def find_interpreter(version: str = "") -> Interpreter:
    """The interpreter of a version such as `3.11` or `3.11.7`; without one, the platform's own."""
    own = _own_interpreter()
    if not version or version in (own.version, own.minor):
        return own
    found = _search(version)
    if found is None:
        raise NotFound(
            f"There is no Python {version} on this machine.",
            hint=f"Install it (`uv python install {version}` does), or use an engine with Python {own.minor}.",
            code="python_missing",
            where="engine",
        )
    return found


def find_uv() -> Path:
    """The uv program that is installed with the platform."""
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if (folder / "uv").is_file():
            return folder / "uv"
    found = shutil.which("uv")
    if found is None:
        raise HostUnfit(
            "The program uv is missing; environments are built with it.",
            hint="Install the platform with its server part: pip install '.[server]' in its checkout.",
            code="uv_missing",
        )
    return Path(found)


@functools.cache
def _own_interpreter() -> Interpreter:
    return _describe(Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable))))


@functools.lru_cache(maxsize=16)
def _search(version: str) -> Interpreter | None:
    return _search_pyenv(version) or _search_path(version)


def _search_pyenv(version: str) -> Interpreter | None:
    """pyenv's own commands only find the versions that are switched on; its folder has them all."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders = [*root.glob(f"versions/{version}"), *root.glob(f"versions/{version}.*")]
    for folder in sorted(
        folders, key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)], reverse=True
    ):
        if re.fullmatch(r"[\d.]+", folder.name) and (folder / "bin/python").exists():
            return _describe(Path(os.path.realpath(folder / "bin/python")))
    return None


def _search_path(version: str) -> Interpreter | None:
    try:
        answer = subprocess.run(
            [
                str(find_uv()),
                "python",
                "find",
                "--no-config",
                "--no-python-downloads",
                "--no-project",
                version,
            ],
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd="/",
            env={key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = answer.stdout.decode("utf-8", "replace").strip()
    if answer.returncode or not text:
        return None
    return _describe(Path(os.path.realpath(text)))


def _describe(executable: Path) -> Interpreter:
    try:
        answer = subprocess.run(
            [str(executable), "-I", "-S", "-c", _QUESTION],
            capture_output=True,
            timeout=_SECONDS,
            check=True,
            stdin=subprocess.DEVNULL,
            cwd="/",
        )
        path, prefix, version, implementation, platform = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise HostUnfit(f"The Python at {executable} does not run: {error}", code="python_broken") from error
    return Interpreter(Path(path), Path(os.path.realpath(prefix)), version, implementation, platform)
