"""The variables by which scripts and clients of other makers find an object store."""

from __future__ import annotations

from collections.abc import Collection, Iterable

__all__ = ["ENDPOINT_GROUPS", "keep_not_overridden"]

# MoXing and scripts around it read the first group; boto3, awscli, s3fs and obstore the second. A group is one
# answer to "which store, and as whom": who changes one of its variables means another store altogether.
ENDPOINT_GROUPS: tuple[frozenset[str], ...] = (
    frozenset({"S3_ENDPOINT", "S3_USE_HTTPS", "S3_VERIFY_SSL", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY"}),
    frozenset(
        {
            "AWS_ENDPOINT_URL",
            "AWS_ENDPOINT_URL_S3",
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "AWS_PROFILE",
            "AWS_DEFAULT_REGION",
            "AWS_REGION",
        }
    ),
)


def keep_not_overridden(names: Iterable[str], own: Collection[str]) -> tuple[str, ...]:
    """Those of the platform's variables that a job gets: none of a group of which it has variables of its own."""
    taken = [group for group in ENDPOINT_GROUPS if not group.isdisjoint(own)]
    return tuple(name for name in names if not any(name in group for group in taken))
