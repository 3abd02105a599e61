"""The demonstration, as `make demo` runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demonstration_ends_with_a_trained_model_twice(tmp_path: Path, support: Any) -> None:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TRAINSHED_")}
    try:
        for number in (1, 2):
            done = subprocess.run(
                [sys.executable, ROOT / "scripts" / "demo.py", tmp_path],
                capture_output=True,
                text=True,
                env=variables,
                timeout=250,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            results = sorted(tmp_path.glob("run-*/accuracy.json"))
            assert len(results) == number
            assert json.loads(results[-1].read_text())["accuracy"] > 0.9
            assert (results[-1].parent / "model.npz").stat().st_size > 1000
            assert "digits that it has never seen" in done.stdout
    finally:
        support.stop_platform(tmp_path / "home")
