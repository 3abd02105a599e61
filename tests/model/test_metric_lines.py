from __future__ import annotations

import json
import math
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.model.metric_lines import MetricParser, read_metric_record, value_from_json, value_to_json

GOLDEN = Path(__file__).parent / "golden"


def test_the_lines_of_the_frameworks_are_understood() -> None:
    parser = MetricParser()
    lines = (GOLDEN / "metric_lines.log").read_bytes().decode().split("\n")[:-1]
    expected = [json.loads(line) for line in (GOLDEN / "metric_lines.jsonl").read_text().splitlines()]
    assert len(lines) == len(expected)
    for line, points in zip(lines, expected, strict=True):
        found = [[p.name, value_to_json(p.value), p.step, p.epoch] for p in parser.feed(line)]
        assert found == points, line


@pytest.mark.parametrize(
    "line",
    [
        "",
        "We saw a packet loss: 3 of 100 packets in the network",
        "The loss is 3.5 million dollars this year, said the bank",
        "loss: 3",
        "accuracy is 5 meters",
        "Downloading map: 33.2 MB",
        "Installing torch==2.13.0",
        "step back and breathe",
        "Epoch times are measured in seconds",
        "https://example.invalid/loss=0.3",
        "the loss function is described in section 3.2 of the paper that we follow here",
        '{"level": "info", "pid": 4711, "time": 1700000000.5, "message": "started"}',
        "Traceback (most recent call last): File 'loss.py', line 12",
        "version 1.2.3 of accuracy-tools",
        "loss: 1.2.3",
    ],
)
def test_ordinary_lines_hold_no_metric(line: str) -> None:
    assert MetricParser().feed(line) == []


def test_bytes_and_text_are_the_same() -> None:
    assert MetricParser().feed(b"loss=0.5 step 1\xff") == MetricParser().feed("loss=0.5 step 1\ufffd") != []


def test_steps_run_on_over_the_epochs_even_where_a_line_counts_within_its_epoch() -> None:
    parser = MetricParser()
    steps = []
    for epoch in (1, 2, 3):
        for step in (100, 200, 300):
            steps += [point.step for point in parser.feed(f"epoch: {epoch} step: {step}, loss is 0.1")]
    assert steps == sorted(set(steps)) and len(steps) == 9


def test_a_progress_bar_counts_each_step_once() -> None:
    bar = "\r".join(f"Epoch 2: {i}%|█| {i // 2}/50 [00:01<00:09, loss={i}.5]" for i in range(100))
    points = MetricParser().feed(bar)
    assert len(points) == 50
    assert points[-1].value == 99.5 and points[-1].step == 50 + 49


@pytest.mark.parametrize(
    "junk",
    [
        "a" * 1_000_000,
        "loss=" * 200_000,
        "loss: " + "1" * 1_000_000,
        "epoch " * 160_000,
        "\r".join(["loss=0.1"] * 110_000),
        "{" * 1_000_000 + "loss",
        '"loss":' * 140_000,
        "loss " + " " * 1_000_000,
        "a.loss" * 680,
        "step " * 800 + "loss",
        "[\x1b" * 2000 + "loss",
        "{" * 4000 + "loss}",
        '{"loss":' * 500 + "}",
        "avg " * 1000 + "loss",
        "loss: " + "(" * 4000,
        "\r".join(["step 1/2 - loss: 0.5 " * 190] * 16),
    ],
)
def test_hostile_lines_hold_nobody_up(junk: str) -> None:
    worker = threading.Thread(target=lambda: MetricParser().feed(junk), daemon=True)
    worker.start()
    worker.join(90)
    assert not worker.is_alive(), "a pattern runs away"


@given(st.text(max_size=300), st.text(max_size=300))
def test_no_text_breaks_the_parser(first: str, second: str) -> None:
    parser = MetricParser()
    parser.feed(first)
    parser.feed(f"{first} loss: 0.1 {second}")
    parser.feed(f"{{'loss': 1e999, 'epoch': {second}}}")


@pytest.mark.parametrize(
    "line", ["loss=1e9999 step=1", '{"loss": 1e999, "step": 3}', "epoch: 1 step: 2, loss is inf"]
)
def test_endless_values_are_kept(line: str) -> None:
    assert [point.value for point in MetricParser().feed(line)] == [math.inf]


@pytest.mark.parametrize("value", [0.25, math.inf, -math.inf])
def test_values_survive_json(value: float) -> None:
    assert value_from_json(json.loads(json.dumps(value_to_json(value), allow_nan=False))) == value


def test_not_a_number_survives_json() -> None:
    assert math.isnan(value_from_json(json.loads(json.dumps(value_to_json(math.nan), allow_nan=False))))


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        {},
        {"name": "", "value": 1},
        {"name": "a", "value": "1"},
        {"name": "a", "value": True},
        {"name": "a\nb", "value": 1},
        {"name": "a", "value": 10**400},
        {"name": 3, "value": 1},
    ],
)
def test_records_that_are_no_points_are_left_out(record: object) -> None:
    assert read_metric_record(record) is None
