"""The Apulis examples, through the whole platform: two workers, ssh between them, sixteen MindSpore ranks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize("platform_up", [("--rehearse", "nvidia:4")], indirect=True)
def test_a_host_file_job_reaches_both_workers(platform_up: Any) -> None:
    job = EXAMPLES / "apulis-horovod" / "job.yaml"
    done = platform_up.cli("submit", job, "--set", "hold=1", "--follow", timeout=200)
    assert done.exit_code == 0, done.output
    ranks = set(
        re.findall(r"rank (\d) of 8, local rank (\d) on (worker-\d): \[ 2.  -3.   0.5\]", done.stdout)
    )
    assert ranks == {(str(rank), str(rank % 4), f"worker-{rank // 4}") for rank in range(8)}
    assert "held open" in done.output
