"""The runner as a file, for whoever wants to look at it or to put it on machines by hand."""

from __future__ import annotations

from pathlib import Path

from trainshed.model.errors import HostUnfit
from trainshed.services.runner_bundle import write_bundle

__all__ = ["write_runner"]


def write_runner(target: Path) -> dict[str, str | int]:
    """Write the runner of this installation to a file; tells its path, its size and its SHA-256."""
    try:
        bundle = write_bundle(target)
    except OSError as error:
        raise HostUnfit(
            f"{target} cannot be written: {error.strerror}.",
            hint="Name a file in a folder that exists, on a disk with some megabytes of room.",
        ) from error
    return {"file": str(bundle.path), "bytes": target.stat().st_size, "sha256": bundle.digest}
