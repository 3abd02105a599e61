"""Cases that all settings of buckets have."""

from __future__ import annotations

from typing import Any

from s3_table.case import Case
from s3_table.stage import FOREIGN, MISSING, own

__all__ = ["closed"]


def closed(setting: str, put: dict[str, Any]) -> list[Case]:
    """Who may not see or change a setting: strangers, viewers (who do not change), nobody."""
    name = "".join(word.capitalize() for word in setting.split("_"))
    cases = []
    for verb, arguments in (("get", {}), ("put", put), ("delete", {})):
        if verb == "delete" and setting == "bucket_acl":
            continue
        # Rules of a lifecycle are put and got by a longer name than they are deleted by.
        method = f"{verb}_{setting}"
        if setting == "bucket_lifecycle" and verb != "delete":
            method += "_configuration"
        title = f"{verb.capitalize()}{name}"
        cases += [
            Case(
                title,
                "a missing bucket",
                lambda s, m=method, a=arguments: getattr(s.dev, m)(Bucket=MISSING, **a),
                404,
                "NoSuchBucket",
            ),
            Case(
                title,
                "somebody else's bucket",
                lambda s, m=method, a=arguments: getattr(s.dev, m)(Bucket=FOREIGN, **a),
                403,
                "AccessDenied",
            ),
            Case(
                title,
                "anonymous",
                lambda s, m=method, a=arguments: getattr(s.nobody, m)(**a),
                403,
                "AccessDenied",
            ),
        ]
        if verb != "get":
            cases.append(
                Case(
                    title,
                    "one who may only read",
                    lambda s, m=method, a=arguments: getattr(s.viewer, m)(**a),
                    403,
                    "AccessDenied",
                    before=(own,),
                )
            )
    return cases
