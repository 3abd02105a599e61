"""A node whose Python has nothing gets the ssh server's packages: from the platform, or from the package index."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainshed.model.errors import NotFound
from trainshed.model.home import Home
from trainshed.runner.ssh.interpreter_tag import interpreter_tag
from trainshed.services.ssh_packages import find_ssh_packages, ssh_packages_version

SOURCES = Path(__file__).resolve().parents[3] / "src"
# A bare interpreter, as a node has it, and a platform that has the packages (or not).
NODE = """
import pathlib, shutil, sys
from trainshed.model.errors import NotFound
from trainshed.runner.remote.ssh_packages import provide_ssh_packages
from trainshed.runner.ssh.door import PACKAGES, find_package
class Link:
    def fetch(self, path, query, target):
        if not sys.argv[2]:
            raise NotFound("The platform's ssh packages are for another Python.")
        shutil.copy(sys.argv[2], target)
assert find_package("asyncssh") is None
for _ in range(2):
    print(repr(provide_ssh_packages(Link(), pathlib.Path(sys.argv[1]), sys.argv[3])))
print(all(find_package(name) for name in PACKAGES))
"""


def run_node(root: Path, archive: Path | str, version: str) -> list[str]:
    root.mkdir(exist_ok=True)
    keep = ("PATH", "HOME", "LANG", "SSL_CERT_FILE", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
    environment = {name: os.environ[name] for name in keep if name in os.environ}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    done = subprocess.run(
        [os.path.realpath(sys.executable), "-s", "-c", NODE, str(root), str(archive), version],
        env={**environment, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_platforms_own_packages_serve_a_node_of_the_same_kind(home: Home, tmp_path: Path) -> None:
    archive = find_ssh_packages(home, interpreter_tag())
    assert find_ssh_packages(home, interpreter_tag()) == archive, "built once"
    assert run_node(tmp_path / "node", archive, ssh_packages_version()) == ["''", "''", "True"]
    [folder] = (tmp_path / "node").iterdir()
    assert (folder / "complete").exists() and (folder / "asyncssh").is_dir()
    shutil.rmtree(folder)


def test_other_kinds_are_refused_and_a_broken_archive_is_no_reason_to_fail(
    home: Home, tmp_path: Path
) -> None:
    with pytest.raises(NotFound, match="not for cpython-38-vax"):
        find_ssh_packages(home, "cpython-38-vax")
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"no zip")
    first, second, has_all = run_node(tmp_path / "node", broken, "no-such-package-of-ours==1")
    assert "the ssh packages cannot be had" in first and first == second and has_all == "False"
    assert list((tmp_path / "node").iterdir()) == []
    assert run_node(tmp_path / "node", "", "")[0] == (
        "'neither this machine nor the platform has the package asyncssh'"
    )


@pytest.mark.slow
def test_a_node_of_another_kind_takes_them_from_its_index(tmp_path: Path) -> None:
    assert run_node(tmp_path / "node", "", ssh_packages_version()) == ["''", "''", "True"]
