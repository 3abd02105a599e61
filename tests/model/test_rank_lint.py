"""The lint for ranks that are the same on every node."""

from __future__ import annotations

import pytest

from trainshed.model.rank_lint import lint_ranks

SCRIPT = """\
export RANK_SIZE=16
for((i=0; i<${DEVICE_NUM}; i++))
do
    export DEVICE_ID=$i
    export RANK_ID=%s
    python train.py &
done
"""


@pytest.mark.parametrize("value", ["$i", "${i}", '"$i"', "0", "$DEVICE_ID"])
def test_the_same_ranks_on_every_node_are_told(value: str) -> None:
    (warning,) = lint_ranks(SCRIPT % value, "run.sh", 2)
    assert warning.startswith("run.sh:5 ") and value in warning and "2 nodes" in warning


@pytest.mark.parametrize(
    "value",
    [
        "$((NODE_RANK*8+i))",
        "$((DLWS_ROLE_IDX * 8 + i))",
        "$[first+i]",
        "${RANK_START}",
        "$RANK_ID",
        "$((start+i))",
    ],
)
def test_ranks_that_count_the_node_are_fine(value: str) -> None:
    assert lint_ranks(SCRIPT % value, "run.sh", 2) == []


def test_one_node_needs_no_lint() -> None:
    assert lint_ranks(SCRIPT % "$i", "run.sh", 1) == []
