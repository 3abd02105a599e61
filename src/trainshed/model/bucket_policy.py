"""Who beside its own workspace may use a bucket: canned ACLs and the part of policies that we understand.

A policy only ever adds rights here: statements that allow, to everybody (`*`) or to workspaces by their ids, actions on
the bucket and its objects. What cannot be judged (Deny, conditions, exceptions) is refused when it is set, because a
policy that is kept but not followed would be worse than none.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from trainshed.model.errors import InvalidInput

__all__ = ["CANNED_ACLS", "Statement", "acl_allows", "parse_policy", "policy_allows"]

CANNED_ACLS = frozenset(
    {
        "private",
        "public-read",
        "public-read-write",
        "authenticated-read",
        "bucket-owner-read",
        "bucket-owner-full-control",
        "public-read-delivered",
        "public-read-write-delivered",
    }
)
_ARN = re.compile(r"arn:aws:s3:::|urn:[a-z]*:obs:[^:]*:[^:]*:[^:]*:")
_ACCOUNT = re.compile(r"(?:arn:aws:iam::|domain/)?([A-Za-z0-9-]+)(?::root|:user/\*)?")


@dataclass(frozen=True)
class Statement:
    """One permission: who, what, where."""

    principals: tuple[str, ...]
    actions: tuple[str, ...]
    resources: tuple[str, ...]


def parse_policy(text: str, bucket: str) -> tuple[Statement, ...]:
    """The statements of a policy; raises when there is something that could not be followed."""
    try:
        document = json.loads(text)
        statements = document["Statement"]
        found = [
            _read_statement(entry, bucket)
            for entry in (statements if isinstance(statements, list) else [statements])
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _malformed("The policy is not a JSON document with statements.") from None
    if not found:
        raise _malformed("The policy has no statement.")
    return tuple(found)


def policy_allows(
    statements: tuple[Statement, ...], workspace_id: str, action: str, bucket: str, key: str = ""
) -> bool:
    """Whether one of the statements allows this; the workspace is empty for a caller without a name."""
    place = f"{bucket}/{key}" if key else bucket
    return any(
        ("*" in statement.principals or (workspace_id and workspace_id in statement.principals))
        and any(_matches(pattern.lower(), action.lower()) for pattern in statement.actions)
        and any(_matches(pattern, place) for pattern in statement.resources)
        for statement in statements
    )


def acl_allows(acl: str, action: str, *, is_known: bool) -> bool:
    """Whether a canned ACL of a bucket or object gives this right to somebody who is not its owner."""
    if action == "read":
        return acl.startswith("public-read") or (acl == "authenticated-read" and is_known)
    return acl.startswith("public-read-write")


def _read_statement(entry: dict[str, Any], bucket: str) -> Statement:
    unknown = set(entry) - {"Sid", "Effect", "Principal", "Action", "Resource"}
    if unknown or entry["Effect"] != "Allow":
        what = ", ".join(sorted(unknown)) or f"Effect {entry['Effect']}"
        raise _malformed(f"A statement has what cannot be followed here: {what}.")
    principal = entry["Principal"]
    if isinstance(principal, dict):
        principal = [name for value in principal.values() for name in _listed(value)]
    principals = []
    for name in _listed(principal):
        account = _ACCOUNT.fullmatch(name)
        if name != "*" and account is None:
            raise _malformed(f"The principal '{name[:80]}' is neither * nor a workspace.")
        principals.append("*" if account is None else account[1])
    actions = tuple(name.removeprefix("s3:").removeprefix("obs:") for name in _listed(entry["Action"]))
    resources = tuple(_ARN.sub("", name, count=1) for name in _listed(entry["Resource"]))
    for resource in resources:
        if resource.partition("/")[0] != bucket:
            raise _malformed(f"The resource '{resource[:80]}' is not in this bucket.")
    return Statement(tuple(principals), actions, resources)


def _listed(value: Any) -> list[str]:
    found = value if isinstance(value, list) else [value]
    if not found or not all(isinstance(item, str) and item for item in found):
        raise TypeError
    return found


def _matches(pattern: str, text: str) -> bool:
    """`*` stands for any characters and `?` for one; without backtracking, whatever the pattern."""
    at = star = -1
    mark = position = 0
    at = 0
    while position < len(text):
        if at < len(pattern) and pattern[at] in (text[position], "?") and pattern[at] != "*":
            at, position = at + 1, position + 1
        elif at < len(pattern) and pattern[at] == "*":
            star, mark, at = at, position, at + 1
        elif star >= 0:
            mark += 1
            at, position = star + 1, mark
        else:
            return False
    return pattern[at:].strip("*") == ""


def _malformed(message: str) -> InvalidInput:
    return InvalidInput(
        message, hint="docs/obs-clients.md says what a policy may hold.", code="malformed_policy"
    )
