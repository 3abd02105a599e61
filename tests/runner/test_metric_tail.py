"""Metrics read from logs and from the job's own file."""

from __future__ import annotations

import json
from pathlib import Path

from trainshed.runner.metric_tail import MetricTail


def points(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_lines_are_read_whole_as_they_grow(tmp_path: Path) -> None:
    log, own, target = tmp_path / "rank-0.log", tmp_path / "own.jsonl", tmp_path / "metrics.jsonl"
    log.write_bytes(b"epoch: 1 step: 1, loss is 0.5\nepoch: 1 step: 2, lo")
    tail = MetricTail({0: log}, own, target, 0)
    tail.read()
    assert [(p["name"], p["value"], p["step"]) for p in points(target)] == [("loss", 0.5, 1)]
    with log.open("ab") as file:
        file.write(b"ss is 0.25\nepoch: 1 step: 3, loss is 0.125")
    tail.read(final=True)
    tail.close()
    assert [p["value"] for p in points(target)] == [0.5, 0.25, 0.125]


def test_what_the_job_writes_itself_is_checked(tmp_path: Path) -> None:
    own, target = tmp_path / "own.jsonl", tmp_path / "metrics.jsonl"
    own.write_text(
        '{"name": "reward", "value": 1.5, "step": 3}\nnonsense\n{"name": 1}\n[]\n{"name": "x", "value": "NaN"}\n'
        '{"name": "y", "value": 1e999, "step": null}\n{"name": "", "value": 1}\n',
        "utf-8",
    )
    tail = MetricTail({}, own, target, 4)
    tail.read(final=True)
    tail.close()
    rows = points(target)
    assert [(row["name"], row["value"], row["rank"]) for row in rows] == [
        ("reward", 1.5, 4),
        ("x", "nan", 4),
        ("y", "inf", 4),
    ]
    assert rows[0]["step"] == 3


def test_junk_and_endless_lines_do_no_harm(tmp_path: Path) -> None:
    log, target = tmp_path / "rank-0.log", tmp_path / "metrics.jsonl"
    log.write_bytes(b"\xff\x00" * 100_000 + b"a" * 3_000_000 + b"\nepoch: 1 step: 7, loss is 2.0\n")
    tail = MetricTail({0: log}, tmp_path / "none", target, 0)
    tail.read(final=True)
    tail.close()
    assert [row["step"] for row in points(target)] == [7]


def test_a_link_in_place_of_the_jobs_file_is_not_followed(tmp_path: Path) -> None:
    secret, own, target = tmp_path / "secret", tmp_path / "own.jsonl", tmp_path / "metrics.jsonl"
    secret.write_text('{"name": "stolen", "value": 1}\n', "utf-8")
    own.symlink_to(secret)
    tail = MetricTail({}, own, target, 0)
    tail.read(final=True)
    tail.close()
    assert points(target) == []
