"""What a node needs to answer ssh, where its Python does not have it: from the platform, or from the package index.

The packages are kept on the node for the next job. Whether this interpreter can load them is tried once.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from trainshed.durable import remove_tree
from trainshed.model.errors import HostUnfit, NotFound, TrainshedError
from trainshed.runner.environment.index import read_pip_settings
from trainshed.runner.environment.interpreter import find_uv
from trainshed.runner.remote.platform_link import PlatformLink
from trainshed.runner.ssh.door import PACKAGES, find_package
from trainshed.runner.ssh.interpreter_tag import interpreter_tag

__all__ = ["provide_ssh_packages"]

_INSTALL_SECONDS = 180
_TRIAL_SECONDS = 60
_TRIAL = "import sys; sys.path.insert(0, sys.argv[1]); import asyncssh"


def provide_ssh_packages(link: PlatformLink, root: Path, version: str) -> str:
    """See to it that the ssh server's packages can be found; why not, where that fails. No job depends on it."""
    _see_installed()
    if all(find_package(name) is not None for name in PACKAGES):
        return ""
    if not version:
        return "neither this machine nor the platform has the package asyncssh"
    digest = hashlib.sha256(f"{interpreter_tag()} {version}".encode()).hexdigest()[:16]
    folder = root / f"ssh-packages-{digest}"
    if (folder / "complete").exists():
        os.utime(folder)
    else:
        fault = _make(link, folder, version)
        if fault:
            return fault
    sys.path.append(str(folder))
    importlib.invalidate_caches()
    return ""


def _see_installed() -> None:
    """Let the packages be found that are installed for this Python: a runner is started without them."""
    import site

    sys.path += [path for path in site.getsitepackages([sys.prefix]) if path not in sys.path]
    importlib.invalidate_caches()


def _make(link: PlatformLink, folder: Path, version: str) -> str:
    """Bring the packages here by the first way that works. Many may do this at once."""
    faults = []
    for bring in (_bring_from_platform, _bring_from_index):
        fresh = folder.with_name(f".{folder.name}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            bring(link, fresh, version)
            _try(fresh)
            (fresh / "complete").touch()
            try:
                fresh.rename(folder)
            except OSError:
                # Another one was quicker, or was killed in the middle of it.
                if not (folder / "complete").exists():
                    remove_tree(folder)
                    fresh.rename(folder)
            return ""
        except (TrainshedError, OSError, zipfile.BadZipFile, subprocess.SubprocessError) as fault:
            faults.append(str(fault).strip().splitlines()[0][:200])
        finally:
            if fresh.exists():
                remove_tree(fresh)
    return f"the ssh packages cannot be had: {'; '.join(faults)}"


def _bring_from_platform(link: PlatformLink, folder: Path, version: str) -> None:
    archive = folder.with_suffix(".zip")
    try:
        link.fetch("ssh-packages", {"tag": interpreter_tag()}, archive)
        with zipfile.ZipFile(archive) as file:
            file.extractall(folder)
    finally:
        archive.unlink(missing_ok=True)


def _bring_from_index(link: PlatformLink, folder: Path, version: str) -> None:
    settings = read_pip_settings()
    if settings.no_index and not settings.find_links:
        raise NotFound("this machine has no package index")
    # Wheels only: nothing of what is installed runs here.
    line = [str(find_uv()), "pip", "install", "--quiet", "--no-cache", "--only-binary", ":all:"]
    line += ["--python", sys.executable, "--target", str(folder), *version.split()]
    variables = {**os.environ, **settings.uv_variables()}
    done = subprocess.run(
        line,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_INSTALL_SECONDS,
        check=False,
    )
    if done.returncode:
        said = settings.mask(done.stderr.decode("utf-8", "replace")).strip().splitlines()
        raise HostUnfit(
            f"uv could not install them: {said[-1] if said else 'it failed'}", code="ssh_packages"
        )


def _try(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _TRIAL, str(folder)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_TRIAL_SECONDS,
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise HostUnfit(f"this Python cannot load them: {said[-1] if said else ''}", code="ssh_packages")
