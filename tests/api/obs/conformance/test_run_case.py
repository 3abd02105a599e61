"""A case that does not hold is found out, whichever way it fails."""

from __future__ import annotations

import pytest
from s3_table import Case, Stage, run_case
from s3_table.stage import FOREIGN, there


@pytest.mark.parametrize(
    ("case", "fault"),
    [
        (Case("x", "", lambda s: s.dev.get_object(Key=s.key)), "answered 404 NoSuchKey, not 200"),
        (
            Case("x", "", lambda s: s.dev.get_object(Key=s.key), 404, "NoSuchBucket"),
            "answered 404 NoSuchKey, not 404 NoSuchBucket",
        ),
        (
            Case("x", "", lambda s: s.dev.get_object(Key=s.there), before=(there,), then=lambda s, a: (1, 2)),
            "found 1, not 2",
        ),
        (
            Case(
                "x",
                "a refusal after which an object is there",
                lambda s: (s.dev.put_object(Key=s.key, Body=b""), s.dev.get_object(Key="none"))[1],
                404,
                "NoSuchKey",
            ),
            "refused, and yet something changed",
        ),
        (
            Case(
                "x",
                "a refusal after which an object is another one",
                lambda s: (s.dev.put_object(Key=s.there, Body=b""), s.dev.get_object(Key="none"))[1],
                404,
                "NoSuchKey",
                before=(there,),
            ),
            "refused, and yet something changed",
        ),
        (
            Case(
                "x",
                "a refusal after which an upload is under way",
                lambda s: (s.dev.create_multipart_upload(Key=s.key), s.dev.get_object(Key="none"))[1],
                404,
                "NoSuchKey",
            ),
            "refused, and yet something changed",
        ),
        (
            Case(
                "x",
                "a refusal after which somebody else has an object more",
                lambda s: (
                    s.stranger.put_object(Bucket=FOREIGN, Key=s.key, Body=b""),
                    s.dev.get_object(Bucket=FOREIGN, Key="none"),
                )[1],
                403,
                "AccessDenied",
            ),
            "refused, and yet something changed",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_faults_are_found(stage: Stage, case: Case, fault: str) -> None:
    assert run_case(case, stage).startswith(fault)
