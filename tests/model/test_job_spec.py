"""Job specs: what is taken, and how faults are refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from trainshed.model.errors import InvalidInput
from trainshed.model.job_spec import parse_duration, parse_job_spec, render_duration

MINIMAL = {"code": "./code", "boot": "train.py"}


def test_a_minimal_job_takes_all_defaults() -> None:
    spec = parse_job_spec(MINIMAL)
    assert (spec.flavor, spec.nodes, spec.network, spec.engine, spec.restarts) == (
        "cpu.1",
        1,
        "platform",
        "python",
        0,
    )
    assert spec.to_public_dict() == MINIMAL


@pytest.mark.parametrize(
    ("change", "where", "says"),
    [
        ({"flavour": "cpu.1"}, "flavour", "Did you mean 'flavor'?"),
        ({"command": "echo"}, "boot", "contradicts"),
        ({"boot": "../train.py"}, "boot", "not a path inside"),
        ({"boot": "/train.py"}, "boot", "not a path inside"),
        ({"boot": "train.exe"}, "boot", "must be a .py or .sh"),
        ({"name": "a b"}, "name", "not a job name"),
        ({"inputs": {"data": "http://x/y"}}, "inputs.data", "obs://"),
        ({"outputs": {"out": "obs://UPPER/x"}}, "outputs.out", "not a bucket name"),
        ({"inputs": {"x": "obs://abc/"}, "parameters": {"x": 1}}, "parameters.x", "already the name"),
        ({"environment": {"A": "1"}, "secrets": {"A": "2"}}, "secrets.A", "give it once"),
        ({"environment": {"1A": "1"}}, "environment.1A", "not the name of an environment variable"),
        ({"environment": {"TRAINSHED_TOKEN": "1"}}, "environment.TRAINSHED_TOKEN", "set by the platform"),
        ({"nodes": 0}, "nodes", "greater than or equal to 1"),
        ({"nodes": "many"}, "nodes", "integer"),
        ({"network": "internet"}, "network", "'none', 'platform' or 'open'"),
        ({"time_limit": "2 weeks"}, "time_limit", "45m or 2h"),
        ({"priority": 101}, "priority", "less than or equal to 100"),
        ({"parameters": {"a b": 1}}, "parameters.a b", "not a usable name"),
        ({"log_url": "logs"}, "log_url", "obs://"),
        ({"warn_before": "5m"}, "warn_before", "goes with `time_limit`"),
        ({"warn_before": "5m", "time_limit": "5m"}, "warn_before", "shorter than `time_limit`"),
        ({"warn_signal": "USR2"}, "warn_signal", "goes with `warn_before`"),
        (
            {"warn_signal": "TERM", "warn_before": 1, "time_limit": 9},
            "warn_signal",
            "'USR1' or 'USR2'",
        ),
        ({"on_time_limit": "restart", "time_limit": 9}, "on_time_limit", "goes with `restarts`"),
        ({"idle_action": "stop"}, "idle_action", "goes with `idle_after`"),
        ({"idle_after": -1}, "idle_after", "greater than or equal to 0"),
    ],
)
def test_a_fault_is_refused_with_its_path_and_a_reason(change: dict[str, Any], where: str, says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_job_spec({**MINIMAL, **change})
    assert caught.value.where == where
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "data", [{}, {"code": "x"}, {"boot": "a.py"}, {"command": "x", "parameters": {"a": 1}}, [], "x", None]
)
def test_an_incomplete_job_is_refused(data: Any) -> None:
    with pytest.raises(InvalidInput):
        parse_job_spec(data)


def test_braces_in_a_users_text_do_no_harm() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_job_spec({**MINIMAL, "inputs": {"data": "{evil} {0}"}})
    assert "{evil} {0}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"), [(90, 90), ("90s", 90), ("45m", 2700), ("2h", 7200), ("1.5h", 5400), ("7d", 604800)]
)
def test_durations(text: object, seconds: int) -> None:
    assert parse_duration(text) == seconds


def test_secrets_are_masked_in_the_public_form() -> None:
    spec = parse_job_spec({**MINIMAL, "secrets": {"KEY": "hunter22"}})
    assert "hunter22" not in str(spec.to_public_dict()) + repr(spec)
    assert spec.secrets["KEY"].get_secret_value() == "hunter22"


def test_hold_is_for_jobs_that_are_held_open() -> None:
    assert (
        parse_job_spec({"command": "train && sleep infinity", "dialect": "apulis", "hold": "2h"}).hold == 7200
    )
    with pytest.raises(InvalidInput, match="'hold' is for the dialect apulis") as found:
        parse_job_spec({"command": "train", "hold": "2h"})
    assert found.value.where == "hold" and found.value.hint


@pytest.mark.parametrize(
    ("field", "value", "message", "hint"),
    [
        ("nodes", 2000, "it should be less than or equal to 1024", "About `nodes`: "),
        ("nodes", "two", "it should be a valid integer", "About `nodes`: "),
        ("dialect", "modelart", "it should be 'native', 'modelarts-v1'", "Did you mean 'modelarts-v"),
        (
            "network",
            "everything",
            "it should be 'none', 'platform' or 'open'",
            "Known: none, open, platform.",
        ),
    ],
)
def test_a_value_that_a_field_does_not_take_comes_with_the_next_step(
    field: str, value: object, message: str, hint: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)) as found:
        parse_job_spec({"command": "train", field: value})
    assert found.value.hint.startswith(hint)


@pytest.mark.parametrize("text", ["0s", "45s", "90m", "2h", "7d"])
def test_a_duration_is_written_as_it_is_read(text: str) -> None:
    assert render_duration(parse_duration(text)) == text
