"""Where the files of a run lie that could not be brought home, and how somebody gets at them."""

from __future__ import annotations

import os

from trainshed.model.home import RunFolder
from trainshed.runner.site import read_site

__all__ = ["name_place", "tell_way"]


def name_place(folder: RunFolder) -> str:
    """The place in the way of scp, `machine:folder`; only the folder where the platform is on the same machine."""
    machine = _machine(folder)
    return f"{machine}:{folder.root}" if machine else str(folder.root)


def tell_way(folder: RunFolder) -> str:
    """The next step for somebody who wants the files."""
    if not _machine(folder):
        return (
            f"The files are kept in {folder.root}; the platform tries again to bring them home before it clears"
            " that folder."
        )
    return (
        f"The files stay on the machine for a week: `scp -r {name_place(folder)} .` gets them, as the user"
        f" {_user()} of that machine."
    )


def _machine(folder: RunFolder) -> str:
    try:
        return read_site(folder).machine
    except (OSError, ValueError):
        # A run is brought to its end even where this cannot be read any more.
        return ""


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
