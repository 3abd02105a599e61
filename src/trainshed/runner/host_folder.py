"""Folders of this machine that a job sees as read-only inputs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from trainshed.model.errors import HostUnfit, InvalidInput, NotFound
from trainshed.model.host_folder import find_allowed
from trainshed.runner.sandbox.stage import open_beneath

__all__ = ["open_host_folder"]


def open_host_folder(path: str, allowed: tuple[str, ...], run_folder: Path) -> int:
    """A descriptor of a folder that is offered to jobs.

    It was checked when the job was submitted, but whoever may write there could have put a link into its place
    since: every step down from the allowed folder is taken without following one.
    """
    found = find_allowed(path, (os.path.realpath(folder) for folder in allowed))
    if found is None or run_folder.resolve().is_relative_to(path):
        raise InvalidInput(
            f"The folder {path} is not offered to jobs any more.",
            hint="Ask the administrator (setting host_folders), or upload the data to the store.",
            code="host_folder_forbidden",
        )
    try:
        folder = open_beneath(Path(found[0]), found[1])
    except NotADirectoryError as error:
        raise HostUnfit(f"A link or a file is in the way to {path}.", code="input") from error
    except OSError as error:
        raise NotFound(
            f"The input folder {path} cannot be used on this machine: {error.strerror}.",
            hint="It must be there on every machine that runs jobs.",
            code="input",
        ) from error
    if not stat.S_ISDIR(os.fstat(folder).st_mode):
        os.close(folder)
        raise NotFound(f"{path} is not a folder on this machine.", code="input")
    return folder
