"""Code that came with the plan is put where the job will see it; all other code is staged as everywhere."""

from __future__ import annotations

import binascii
import os
from collections.abc import Sequence
from typing import Any

from trainshed.model.home import RunFolder
from trainshed.store.folder_tree import FileGone, FolderTree, safe_parts

__all__ = ["write_code"]


def write_code(folder: RunFolder, files: Sequence[Sequence[Any]]) -> None:
    """Write the files, and a mark that they are all there."""
    if not files:
        return
    target = folder.root / "code"
    before = os.umask(0o022)
    try:
        target.mkdir(parents=True)
        with FolderTree(target) as tree:
            for path, is_executable, content in files:
                parts = safe_parts(str(path))
                if parts is None:
                    return
                data = binascii.a2b_base64(content)
                with tree.new_file(parts, is_executable=bool(is_executable)) as file:
                    while data:
                        data = data[os.write(file, data) :]
    except (FileGone, ValueError):
        return
    finally:
        os.umask(before)
    folder.code_here.touch()
