"""The table's chapters about versions, parts, signatures, bodies, forms and OBS's own hold on our store."""

from __future__ import annotations

import pytest
from s3_table import CHAPTERS, Case, Stage, run_case

CASES = [
    case
    for chapter in [
        "Versions",
        "Multipart uploads",
        "Signatures",
        "Presigned URLs",
        "Chunked bodies",
        "Forms",
        "OBS",
    ]
    for case in CHAPTERS[chapter]
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(stage: Stage, case: Case) -> None:
    assert run_case(case, stage) == ""
