from __future__ import annotations

from typing import Any

import click
import pytest

from trainshed.cli.submission import apply_changes, build_job
from trainshed.model.job_spec import parse_job_spec


def test_options_become_the_job() -> None:
    options: dict[str, Any] = {
        "code": "src",
        "boot": "train.py",
        "parameters": (("epochs", "3"), ("lr", "1e-3"), ("rate", "0.5"), ("tag", "007"), ("empty", "")),
        "inputs": (("data_url", "obs://datasets/digits/"),),
        "outputs": (),
        "secrets": ("A=1=2", "B"),
        "nodes": None,
        "time_limit": "45m",
    }
    job = build_job(options, {"B": "from-environment"})
    assert job == {
        "code": "src",
        "boot": "train.py",
        "parameters": {"epochs": 3, "lr": "1e-3", "rate": 0.5, "tag": "007", "empty": ""},
        "inputs": {"data_url": "obs://datasets/digits/"},
        "secrets": {"A": "1=2", "B": "from-environment"},
        "time_limit": "45m",
    }
    # What the script sees is what was typed.
    assert [f"--{k}={v}" for k, v in parse_job_spec(job).parameters.items()] == [
        "--epochs=3",
        "--lr=1e-3",
        "--rate=0.5",
        "--tag=007",
        "--empty=",
    ]


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1_000", " 3", "0x10", "+3", "1.50", "1e5", "-0"])
def test_text_that_a_number_would_change_stays_text(text: str) -> None:
    value = build_job({"parameters": (("x", text),)}, {})["parameters"]["x"]
    assert str(value) == text


def test_the_same_name_twice_is_refused() -> None:
    with pytest.raises(click.UsageError, match="'x' is given twice"):
        build_job({"parameters": (("x", "1"), ("x", "2"))}, {})


def test_secret_that_is_not_set_is_refused() -> None:
    with pytest.raises(click.UsageError, match="KEY"):
        build_job({"secrets": ("KEY",)}, {})


def test_fields_are_set_from_the_command_line() -> None:
    job = {"boot": "train.py", "parameters": {"lr": 0.1}, "nodes": 1}
    changed = apply_changes(
        job, (("nodes", "2"), ("parameters.epochs", "3"), ("hold", "5m"), ("ssh", "true"))
    )
    assert changed == {
        "boot": "train.py",
        "parameters": {"lr": 0.1, "epochs": 3},
        "nodes": 2,
        "hold": "5m",
        "ssh": True,
    }
    assert job["nodes"] == 1
    with pytest.raises(click.UsageError, match="--set boot=VALUE"):
        apply_changes(job, (("boot.x", "1"),))
