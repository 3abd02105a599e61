"""The table's chapters about objects hold on our store."""

from __future__ import annotations

import pytest
from s3_table import CHAPTERS, Case, Stage, run_case

CASES = [
    case
    for chapter in [
        "Writing",
        "Reading",
        "Copying",
        "Deleting",
        "Keys",
        "Safeguards",
        "Tags and ACLs of objects",
    ]
    for case in CHAPTERS[chapter]
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(stage: Stage, case: Case) -> None:
    assert run_case(case, stage) == ""
