"""Launch plans survive the way through JSON, also between neighbouring versions."""

from __future__ import annotations

import json

from trainshed.model import launch_plan
from trainshed.model.attempt import Ending, NodeReport, RankExit, StageEntry
from trainshed.model.launch_plan import (
    Environment,
    GeneratedFile,
    InputFolder,
    Limits,
    NodeLaunch,
    OutputFolder,
    ProcessPlan,
    from_json,
    learn_types,
    to_json,
)

LAUNCH = NodeLaunch(
    "id", "name", "w", 1, 0, 1, 1, ".code", "d/", "/job/code",
    (ProcessPlan(0, 0, ("python", "x"), {"A": "1"}, "/job/code"),),
    Environment("python", "3.11", ("numpy==2.0.0",), "abc"),
    inputs=(InputFolder("data", "b", "k/", "/job/inputs/data"),),
    outputs=(OutputFolder("out", "b", "o/", "/job/outputs/out"),),
    files=(GeneratedFile("/x", "y", 0o600),),
    devices=(0, 1),
    limits=Limits(memory_mb=5),
)  # fmt: skip


def test_a_plan_and_a_report_survive_json() -> None:
    assert from_json(NodeLaunch, json.loads(json.dumps(to_json(LAUNCH)))) == LAUNCH
    report = NodeReport(
        "id", 1, 0, 7, "ended", True, (StageEntry(1.0, "staging"),), (RankExit(0, 1),), Ending("failed", "user"),
        log_sizes={"rank-0": 3},
    )  # fmt: skip
    assert from_json(NodeReport, json.loads(json.dumps(to_json(report)))) == report


def test_unknown_fields_are_left_out_and_missing_ones_take_their_default() -> None:
    data = to_json(LAUNCH)
    data["from_the_future"] = 1
    del data["limits"]
    assert from_json(NodeLaunch, data).limits == Limits()


def test_types_can_be_learnt_before_the_first_read() -> None:
    learn_types(NodeLaunch)
    learn_types(NodeLaunch)
    assert {NodeLaunch, ProcessPlan, Environment, Limits} <= set(launch_plan._READERS)


def test_what_is_written_is_what_is_read_back() -> None:
    # Whoever compares a report with the one that was stored sees a difference only where there is one.
    for value in (LAUNCH, NodeReport("id", 1, 0, 7, "ended", timeline=(StageEntry(1.0, "staging"),))):
        assert to_json(value) == json.loads(json.dumps(to_json(value)))
