"""Every case of the table holds on our store."""

from __future__ import annotations

import pytest
from s3_table import Case, Stage, all_cases, run_case


@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_case(stage: Stage, case: Case) -> None:
    assert run_case(case, stage) == ""
