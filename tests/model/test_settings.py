"""Settings: numbers that may have a fraction."""

from __future__ import annotations

from typing import Any

import pytest

from trainshed.model.errors import InvalidInput
from trainshed.model.settings import read_settings


def test_a_patience_may_be_a_fraction_of_a_minute() -> None:
    assert read_settings({"runner_patience_minutes": 0.25}, {}, {}).runner_patience_minutes == 0.25
    assert read_settings({"runner_patience_minutes": 3}, {}, {}).runner_patience_minutes == 3.0
    given = {"TRAINSHED_RUNNER_PATIENCE_MINUTES": "1.5"}
    assert read_settings({}, given, {}).runner_patience_minutes == 1.5


@pytest.mark.parametrize("value", ["soon", "nan", "inf", -1, [], "1e999"])
def test_what_is_no_length_of_time_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="is a number, 0 or more") as refused:
        read_settings({"runner_patience_minutes": value}, {}, {})
    assert refused.value.where == "settings.toml"
