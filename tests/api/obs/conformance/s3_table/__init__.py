"""The table of S3's and OBS's public references: every operation, its success, and each error that it documents.

The same table runs against any endpoint: our own store in the tests, a real SeaweedFS beside it in
`benchmarks/conformance.py`.
"""

from __future__ import annotations

from s3_table import (
    attributes,
    authentication,
    bucket_access,
    bucket_versions,
    buckets,
    chunked_bodies,
    copying,
    cors_rules,
    deleting,
    forms,
    host_names,
    hostile_keys,
    lifecycle_rules,
    listing,
    multipart_completion,
    multipart_lists,
    multipart_parts,
    object_settings,
    object_versions,
    obs_dialect,
    obs_operations,
    part_checksums,
    presigned,
    reading,
    unkept,
    writing,
)
from s3_table.case import Answer, Case, run_case
from s3_table.stage import Stage, Target, prepare

__all__ = ["CHAPTERS", "Answer", "Case", "Stage", "Target", "all_cases", "prepare", "run_case"]

# Chapter -> its cases.
CHAPTERS: dict[str, list[Case]] = {
    "Buckets": buckets.CASES,
    "Settings of buckets": bucket_access.CASES + cors_rules.CASES + lifecycle_rules.CASES,
    "Writing": writing.CASES,
    "Reading": reading.CASES + attributes.CASES,
    "Copying": copying.CASES,
    "Deleting": deleting.CASES,
    "Lists": listing.CASES,
    "Versions": bucket_versions.CASES + object_versions.CASES,
    "Tags and ACLs of objects": object_settings.CASES,
    "Multipart uploads": multipart_parts.CASES
    + multipart_completion.CASES
    + multipart_lists.CASES
    + part_checksums.CASES,
    "Keys": hostile_keys.CASES,
    "Safeguards": unkept.CASES,
    "Signatures": authentication.CASES + host_names.CASES,
    "Presigned URLs": presigned.CASES,
    "Chunked bodies": chunked_bodies.CASES,
    "Forms": forms.CASES,
    "OBS": obs_dialect.CASES + obs_operations.CASES,
}


def all_cases() -> list[Case]:
    """Every case, in the order of the chapters."""
    return [case for cases in CHAPTERS.values() for case in cases]
