"""Where the packages lie that stand in for the platform's own inside a job."""

from __future__ import annotations

from pathlib import Path

from trainshed.model.errors import HostUnfit

__all__ = ["PATH_FILE", "SHIMS_PATH", "shims_folder"]

# Where a job finds them. A path file in every environment puts it last on the path, so that a package of the
# environment's own goes first.
SHIMS_PATH = "/opt/trainshed/shims"

# That path file. Its second line starts the help for scripts (rehearsal, launchers) in every Python process; outside
# of a job there is no such folder, and nothing happens.
_START = r"try:\n import trainshed_start\nexcept ImportError:\n pass\nelse:\n trainshed_start.begin()"
PATH_FILE = f"{SHIMS_PATH}\nimport sys; exec({chr(34)}{_START}{chr(34)})\n"


def shims_folder() -> Path:
    """The folder of the stand-in packages: inside an installed wheel, or beside `src` in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_shims", package.parents[1] / "shims"):
        if (folder / "trainshed" / "__init__.py").is_file():
            return folder
    raise HostUnfit(
        "The packages for jobs (shims) are missing from this installation.",
        hint="Install Trainshed again, from a wheel or from a whole checkout.",
        code="shims_missing",
    )
