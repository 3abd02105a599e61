"""Steps with versions that several modules of the table take."""

from __future__ import annotations

from typing import Any

from s3_table.case import Answer
from s3_table.stage import Stage, versioned

__all__ = ["listed", "removed", "switch"]


def removed(stage: Stage) -> None:
    """The object with two versions, removed; its marker is noted."""
    versioned(stage)
    stage.notes["marker"] = stage.dev.delete_object(Key=stage.there)["VersionId"]


def switch(status: str) -> Any:
    """Have versions kept from now on, or not."""
    return lambda s: s.dev.put_bucket_versioning(VersioningConfiguration={"Status": status})


def listed(answer: Answer) -> list[tuple[str, str, bool]]:
    """V(ersion) or D(elete marker), its id, and whether it is the latest; in the order of the answer."""
    return [
        (kind[0], entry["VersionId"], entry["IsLatest"])
        for kind in ("Versions", "DeleteMarkers")
        for entry in answer.get(kind, [])
    ]
