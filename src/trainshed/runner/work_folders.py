"""The folders in which a job's processes work, and what is new in them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainshed.durable import write_durably, write_whole
from trainshed.model.home import RunFolder
from trainshed.model.launch_plan import NodeLaunch
from trainshed.runner.staging import StagedFolders
from trainshed.store.folder_tree import FolderTree

__all__ = ["NewFile", "WorkFolder", "WorkFolders"]

# How many entries are looked at: a job may leave millions of files.
_MOST_LOOKED_AT = 50_000


@dataclass(frozen=True)
class WorkFolder:
    """A folder of this machine, and the path under which the job sees it.

    `is_layer`: it holds only what the job wrote, the rest is seen through it from below.
    """

    path: Path
    target: str
    is_layer: bool = True


@dataclass(frozen=True)
class NewFile:
    """A regular file that the job wrote or changed; `path` is counted from the folder."""

    folder: WorkFolder
    path: str
    size: int


class WorkFolders:
    """The working folders of one node."""

    def __init__(self, launch: NodeLaunch, folder: RunFolder, staged: StagedFolders) -> None:
        self._before_path = folder.path / "before.json"
        self.folders = tuple(_find(launch, folder, staged))
        self.outputs = tuple(WorkFolder(staged.output(output.name), output.path) for output in launch.outputs)

    def remember(self, *, is_durable: bool = True) -> None:
        """Note what is there before the job begins, where that lies in the same folder."""
        before = {
            folder.target: {path: _facts_of(tree, path) for path in _paths(tree)}
            for folder in self.folders
            if not folder.is_layer
            for tree in (folder.path,)
        }
        if before:
            (write_durably if is_durable else write_whole)(self._before_path, before)

    def new_files(self) -> Iterator[NewFile]:
        """What the job has written or changed, no link followed; after so many entries the rest is not looked at."""
        before = self._read_before()
        for folder in self.folders:
            known = before.get(folder.target, {})
            for path in _paths(folder.path):
                facts = _facts_of(folder.path, path)
                if facts and list(facts) != known.get(path):
                    yield NewFile(folder, path, facts[0])

    def _read_before(self) -> dict[str, dict[str, list[int]]]:
        try:
            found: dict[str, dict[str, list[int]]] = json.loads(self._before_path.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return found


def _find(launch: NodeLaunch, folder: RunFolder, staged: StagedFolders) -> Iterator[WorkFolder]:
    # The code is the first of what is laid over; where it was copied there is no layer.
    layer = folder.path / "input-layers" / "0" / "upper"
    if layer.is_dir():
        yield WorkFolder(layer, launch.code_path)
    elif staged.code.is_dir():
        yield WorkFolder(staged.code, launch.code_path, is_layer=False)
    for number, target in enumerate(launch.folders):
        is_worked_in = any(
            process.directory == target or process.directory.startswith(f"{target}/")
            for process in launch.processes
        )
        path = staged.root / "folders" / str(number)
        if is_worked_in and path.is_dir():
            yield WorkFolder(path, target)


def _paths(folder: Path) -> Iterator[str]:
    try:
        with FolderTree(folder) as tree:
            for count, path in enumerate(tree.walk(lambda path, reason: None)):
                if count >= _MOST_LOOKED_AT:
                    return
                if not path.endswith("/"):
                    yield path
    except OSError:
        return


def _facts_of(folder: Path, path: str) -> tuple[int, int] | None:
    try:
        facts = os.lstat(folder / path)
    except OSError:
        return None
    return facts.st_size, facts.st_mtime_ns
