"""The writable folders of a job, by the paths that the job knows them under.

A job says `/cache/data`; on the host that lies somewhere in its run folder. The way there begins at a folder
that was opened before the job started and goes down step by step, by descriptor, never through a link: whatever
the job puts in the way, and whenever, no step leads out of its own folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainshed.model.errors import NotAllowed
from trainshed.runner.sandbox.stage import Binding
from trainshed.store.folder_tree import FolderTree

__all__ = ["JobFolders"]

_LONGEST_PATH = 4096
_LONGEST_NAME = 255


@dataclass(frozen=True)
class _Root:
    target: str
    # An open folder, or -1 for what the broker may not use.
    descriptor: int


class JobFolders:
    """Opens what lies at a path of the job's, if it lies in a folder that the job may write."""

    def __init__(self, bindings: Sequence[Binding]) -> None:
        self._roots: list[_Root] = []
        for binding in bindings:
            descriptor = -1
            if binding.writable and os.path.isdir(binding.source):
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                descriptor = os.open(binding.source, flags)
            self._roots.append(_Root(binding.target.rstrip("/"), descriptor))
        self._roots.sort(key=lambda root: len(root.target), reverse=True)

    def close(self) -> None:
        """Close all folders."""
        for root in self._roots:
            if root.descriptor >= 0:
                os.close(root.descriptor)
        self._roots.clear()

    @contextmanager
    def open_tree(self, path: str) -> Iterator[tuple[FolderTree, list[str]]]:
        """The job's folder that holds a path, and the steps from there to it."""
        root, parts = self._find(path)
        with FolderTree(Path(f"/proc/self/fd/{root.descriptor}")) as tree:
            yield tree, parts

    @contextmanager
    def open_folder(self, path: str, *, make: bool = False) -> Iterator[Path]:
        """A folder of the job's, as a path that stays this folder whatever the job renames meanwhile."""
        root, parts = self._find(path)
        whole = "/".join([root.target, *parts])
        if any(other.target.startswith(whole + "/") for other in self._roots):
            raise _refusal(path, "another folder of the job's is mounted inside of it")
        with self.open_tree(path) as (tree, _), tree.open_folder(parts, make=make) as descriptor:
            yield Path(f"/proc/self/fd/{descriptor}")

    def _find(self, path: str) -> tuple[_Root, list[str]]:
        if not path.startswith("/") or "\0" in path or len(os.fsencode(path)) > _LONGEST_PATH:
            raise _refusal(path, "it is not an absolute path")
        parts = path[1:].rstrip("/").split("/")
        if any(part in ("", ".", "..") or len(os.fsencode(part)) > _LONGEST_NAME for part in parts):
            raise _refusal(path, "it is not written out plainly")
        path = "/" + "/".join(parts)
        for root in self._roots:
            if path == root.target or path.startswith(root.target + "/"):
                if root.descriptor < 0:
                    break
                below = path[len(root.target) + 1 :]
                return root, below.split("/") if below else []
        raise _refusal(path, "it does not lie in a folder that the job may write")


def _refusal(path: str, reason: str) -> NotAllowed:
    shown = path[:120].encode(errors="replace").decode()
    return NotAllowed(
        f"The broker cannot use '{shown}': {reason}.",
        hint="Use /cache, /tmp, the home folder, or the job's code, inputs and outputs.",
        code="path_refused",
    )
