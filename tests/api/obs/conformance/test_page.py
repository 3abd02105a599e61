"""The table itself: no case is left out or told wrongly on its page, and every error that we know is in it."""

from __future__ import annotations

import re
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from s3_table import CHAPTERS, all_cases
from s3_table.page import PAGE, render_page

from trainshed.api.obs.errors import STATUSES

ROOT = Path(__file__).resolve().parents[4]
HERE = Path(__file__).parent

# Codes that no single request brings about, and where they are tested instead.
ELSEWHERE = {
    "InternalError": "a fault of the server",
    "NotModified": "in the table by its status, 304: it has no body",
    "QuotaExceeded": "tests/store/embedded/test_quotas.py",
    "ServiceUnavailable": "tests/store/embedded/test_faults.py: a full disk",
    "SlowDown": "tests/store/embedded/test_transactions.py: a busy index",
}


def test_every_chapter_is_run() -> None:
    run: list[str] = []
    for path in HERE.glob("test_*.py"):
        spec = spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        if path.name != Path(__file__).name:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            run += map(str, getattr(module, "CASES", []))
    assert Counter(run) == Counter(map(str, all_cases()))


def test_every_case_has_a_name_of_its_own() -> None:
    assert [name for name, count in Counter(map(str, all_cases())).items() if count > 1] == []
    assert len(all_cases()) > 300


def test_every_code_is_in_the_table_with_its_status() -> None:
    seen = {case.code: case.status for case in all_cases() if case.code}
    assert {code: STATUSES[code] for code in seen} == seen
    assert set(STATUSES) - set(seen) == set(ELSEWHERE)


def test_the_page_tells_what_the_table_is() -> None:
    """Run `benchmarks/conformance.py --write-docs` if this fails: cases were added or changed."""

    def without_the_other(text: str) -> str:
        return re.sub(r"\| \d+ \|$", "|", text, flags=re.MULTILINE)

    written = (ROOT / PAGE).read_text("utf-8")
    assert without_the_other(written) == without_the_other(render_page({}))
    for chapter in CHAPTERS:
        assert f"## {chapter}\n" in written
