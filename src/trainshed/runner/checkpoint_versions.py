"""Checkpoints that came home while a job trained: which of them belong together, and how the next attempt gets them.

Every node of an attempt looks into its folder at the same moments, which are numbered. A version of a node is what its
folder held from one such moment to another. Versions of several nodes belong together where there is a moment at
which each of them was what its folder held. One small object per node lists its versions and is replaced
as a whole; the files themselves are objects that never change.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from trainshed.model.errors import NotFound
from trainshed.model.launch_plan import NodeLaunch, from_json
from trainshed.runner.log_archive import ARCHIVE_BUCKET
from trainshed.store.folder_tree import FileGone, FolderTree, safe_parts
from trainshed.store.object_store import ObjectStore
from trainshed.store.patience import with_patience
from trainshed.store.verification import require_bytes_of

__all__ = [
    "KeptFile",
    "Version",
    "fetch_versions",
    "find_versions",
    "live_prefix",
    "read_versions",
    "write_versions",
]


@dataclass(frozen=True)
class KeptFile:
    """A file of a version, and the object that has its bytes."""

    path: str
    key: str
    size: int
    is_executable: bool = False
    # It came with an earlier attempt, and this node has not touched it.
    is_staged: bool = False


@dataclass(frozen=True)
class Version:
    """What a node's folder held from one moment to another."""

    first: int
    last: int
    files: tuple[KeptFile, ...] = ()


@dataclass(frozen=True)
class _Versions:
    versions: tuple[Version, ...] = field(default=())


def live_prefix(job_id: str, attempt: int) -> str:
    """Where an attempt's versions lie in the archive."""
    return f"{job_id}/checkpoints/attempt-{attempt}/live/"


def write_versions(store: ObjectStore, launch: NodeLaunch, versions: Sequence[Version]) -> None:
    """Replace the list of a node's versions."""
    data = json.dumps(asdict(_Versions(tuple(versions)))).encode()
    key = _list_key(launch.job_id, launch.attempt, launch.node_index)
    store.put(ARCHIVE_BUCKET, key, data, content_type="application/json")


def read_versions(store: ObjectStore, job_id: str, attempt: int, node: int) -> tuple[Version, ...]:
    """A node's versions, oldest first."""
    try:
        with store.open(ARCHIVE_BUCKET, _list_key(job_id, attempt, node)) as file:
            return from_json(_Versions, json.loads(file.read())).versions
    except (NotFound, ValueError, TypeError):
        return ()


def find_versions(store: ObjectStore, job_id: str, attempt: int, nodes: int) -> list[Version]:
    """The latest versions of all nodes of an attempt that belong together; none where there are no such."""
    found: list[tuple[Version, ...]] = []
    for node in range(nodes):
        versions = read_versions(store, job_id, attempt, node)
        if not versions:
            return []
        found.append(versions)
    for moment in sorted({version.last for versions in found for version in versions}, reverse=True):
        fitting = [
            [version for version in versions if version.first <= moment <= version.last] for versions in found
        ]
        if all(fitting):
            return [versions[-1] for versions in fitting]
    return []


def fetch_versions(store: ObjectStore, versions: Sequence[Version], folder: Path) -> tuple[int, int]:
    """Bring the files of all nodes' versions into a folder; how many they were, and how many bytes."""
    chosen: dict[str, KeptFile] = {}
    # The first node comes last: what it wrote counts where two nodes wrote one name. What nobody touched comes first.
    for is_staged in (True, False):
        for version in reversed(versions):
            chosen |= {file.path: file for file in version.files if file.is_staged == is_staged}
    folder.mkdir(parents=True, exist_ok=True)
    with FolderTree(folder) as tree:
        for file in chosen.values():
            parts = safe_parts(file.path)
            if parts is not None:
                with_patience(functools.partial(_fetch, store, tree, file, parts))
    return len(chosen), sum(file.size for file in chosen.values())


def _fetch(store: ObjectStore, tree: FolderTree, file: KeptFile, parts: list[str]) -> None:
    try:
        with tree.new_file(parts, is_executable=file.is_executable) as target:
            info = store.fetch_to_file(ARCHIVE_BUCKET, file.key, target)
            require_bytes_of(store, info, target)
    except FileGone:
        return  # A folder stands in its place: another node made it.


def _list_key(job_id: str, attempt: int, node: int) -> str:
    return f"{live_prefix(job_id, attempt)}node-{node}.json"
