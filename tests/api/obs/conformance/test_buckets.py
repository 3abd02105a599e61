"""The table's chapters about buckets, their settings and their lists hold on our store."""

from __future__ import annotations

import pytest
from s3_table import CHAPTERS, Case, Stage, run_case

CASES = [case for chapter in ["Buckets", "Settings of buckets", "Lists"] for case in CHAPTERS[chapter]]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(stage: Stage, case: Case) -> None:
    assert run_case(case, stage) == ""
