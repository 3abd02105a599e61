"""The checksum of an object that came in parts, made of those that were verified part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainshed.api.obs.checksums import ALGORITHMS, choose_checksum_type, combine_checksums
from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.visit import Visit
from trainshed.model.errors import NotFound
from trainshed.store.object_store import Part

__all__ = ["UPLOAD_CHECKSUM", "combine_part_sums"]

# The attribute of an upload that says which checksum its parts have, and how that of the object is made.
UPLOAD_CHECKSUM = "upload-checksum"


def combine_part_sums(
    visit: Visit,
    upload_id: str,
    named: Sequence[tuple[int, str]],
    wanted: Mapping[int, Mapping[str, str]],
) -> dict[str, str]:
    """The checksum of the object, as an attribute; none where not every part has one.

    `named` are the parts that make the object, `wanted` the checksums of parts that the client remembers.
    """
    found: dict[int, Part] = {}
    told, after = "", 0
    while True:
        try:
            page = visit.store.list_parts(visit.bucket, visit.key, upload_id, after=after)
        except NotFound as error:
            if error.code == "no_such_upload":
                # Completed already, maybe: the store knows.
                return {}
            raise
        told = page.upload.attributes.get(UPLOAD_CHECKSUM, "")
        found.update({part.number: part for part in page.parts})
        after = page.next_after
        if not after:
            break
    for number, sums in wanted.items():
        for name, value in sums.items():
            if number in found and found[number].attributes.get(name, value) != value:
                raise S3Error("InvalidPart", f"The checksum of part {number} is another one.")
    parts = [found[number] for number, _ in named if number in found]
    if len(parts) != len(named):
        return {}
    algorithm, _, kind = told.partition(" ")
    algorithm = algorithm or _common_algorithm(parts)
    name = f"checksum-{algorithm}"
    if not algorithm or any(name not in part.attributes for part in parts):
        return {}
    kind = kind or choose_checksum_type(algorithm, "")
    verified = [(part.attributes[name], part.size) for part in parts]
    return {name: combine_checksums(algorithm, verified, kind)}


def _common_algorithm(parts: Sequence[Part]) -> str:
    for algorithm in ALGORITHMS:
        if all(f"checksum-{algorithm}" in part.attributes for part in parts):
            return algorithm
    return ""
