"""Brings a job's code and inputs from the store into the run folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from trainshed.model.errors import NotFound
from trainshed.model.launch_plan import NodeLaunch
from trainshed.runner.sandbox.stage import give_tree
from trainshed.store.object_store import ObjectStore
from trainshed.store.transfer import download_tree

__all__ = ["StagedFolders", "give_to", "stage"]


class StagedFolders:
    """The folders of the run folder that become visible inside the sandbox."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.code = root / "code"
        self.inputs = root / "inputs"
        self.outputs = root / "outputs"
        self.run = root / "run"

    def input(self, name: str) -> Path:
        """The folder of one input."""
        return self.inputs / name

    def output(self, name: str) -> Path:
        """The folder of one output."""
        return self.outputs / name


def stage(launch: NodeLaunch, store: ObjectStore, root: Path, say: Callable[[str], None]) -> StagedFolders:
    """Copy code and inputs; a job owns its copies and may change them."""
    folders = StagedFolders(root)
    for path in (root, folders.code, folders.inputs, folders.outputs, folders.run):
        path.mkdir(parents=True, exist_ok=True, mode=0o755)
    if launch.code_prefix:
        download_tree(store, launch.code_bucket, launch.code_prefix, folders.code)
    for item in launch.inputs:
        target = folders.input(item.name)
        target.mkdir(exist_ok=True)
        try:
            summary = download_tree(store, item.bucket, item.key, target)
        except NotFound as fault:
            raise NotFound(
                f"The input '{item.name}' (obs://{item.bucket}/{item.key}) is not there any more.",
                hint="Upload it again and rerun the job.",
                code="input",
            ) from fault
        say(f"input {item.name}: {summary.files} files, {summary.bytes / 1e6:.1f} MB")
    for output in launch.outputs:
        folders.output(output.name).mkdir(exist_ok=True)
    return folders


def give_to(path: Path, uid: int) -> None:
    """Make a user the owner of a tree, without following links and without touching shared files."""
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        give_tree(descriptor, uid, uid)
    finally:
        os.close(descriptor)
