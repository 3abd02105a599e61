"""Folders of the machine that an administrator offers to jobs as read-only inputs."""

from __future__ import annotations

import os
from pathlib import Path

from trainshed.model.errors import NotAllowed, NotFound
from trainshed.model.host_folder import find_allowed, host_url, parse_host_url
from trainshed.services.access import require
from trainshed.services.identity import Caller
from trainshed.services.platform import Platform

__all__ = ["check_host_input"]


def check_host_input(platform: Platform, caller: Caller, text: str, where: str) -> str:
    """The URL of a host folder as it is used: its real path, which must lie in an allowed folder.

    Whether something outside of the allowed folders exists is not told.
    """
    require(caller, "host_folder.use")
    path = os.path.realpath(parse_host_url(text, where))
    allowed = [os.path.realpath(folder) for folder in platform.settings.host_folders]
    home = platform.home.path.resolve()
    is_home = home.is_relative_to(path) or Path(path).is_relative_to(home)
    if find_allowed(path, allowed) is None or is_home:
        offered = ", ".join(platform.settings.host_folders)
        raise NotAllowed(
            f"'{text[:200]}' is not a folder that this platform offers to jobs.",
            hint=f"Offered are: {offered}."
            if offered
            else "Upload the data (trainshed obs cp -r), or ask the administrator (setting host_folders).",
            code="host_folder_forbidden",
            where=where,
        )
    if not os.path.isdir(path):
        raise NotFound(
            f"There is no folder '{text[:200]}' on the platform's machine.",
            hint="Folders only: for one file, name the folder that it lies in.",
            code="no_such_input",
            where=where,
        )
    return host_url(path)
