"""Small code travels to a node with its plan: to fetch it from the store would take longer than to send it along."""

from __future__ import annotations

import base64

from trainshed.store.folder_tree import safe_parts
from trainshed.store.object_store import ObjectStore
from trainshed.store.snapshot import is_executable
from trainshed.store.transfer import is_near

__all__ = ["CarriedFile", "carry_code"]

_MOST_FILES, _MOST_BYTES = 16, 64 << 10

# A path, whether it is a program, and the content in base64.
CarriedFile = tuple[str, bool, str]


def carry_code(store: ObjectStore, bucket: str, prefix: str) -> tuple[CarriedFile, ...]:
    """The files of a code snapshot; none where they are many, or far away, or need a closer look."""
    if not prefix.endswith("/") or not is_near(store):
        return ()
    found = store.list(bucket, prefix, limit=_MOST_FILES + 1).objects
    if len(found) > _MOST_FILES or sum(info.size for info in found) > _MOST_BYTES:
        return ()
    files: list[CarriedFile] = []
    for info in found:
        path = info.key.removeprefix(prefix)
        if safe_parts(path) is None:
            return ()
        with store.open(bucket, info.key) as file:
            files.append((path, is_executable(info.metadata), base64.b64encode(file.read()).decode("ascii")))
    return tuple(files)
