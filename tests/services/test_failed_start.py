"""Nodes that do not begin say why; nobody else may say it for them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trainshed.db.engine import begin, read
from trainshed.db.jobs import change_job
from trainshed.db.users import list_users
from trainshed.db.workspaces import list_workspaces
from trainshed.model.errors import Conflict, InvalidInput, NotAuthenticated
from trainshed.model.home import Home
from trainshed.model.phase import Phase
from trainshed.services.attempt_tokens import AttemptCaller, attempt_token, authenticate_attempt
from trainshed.services.explanation import explain_job
from trainshed.services.failed_start import FailedStart, take_failed_start
from trainshed.services.identity import Caller, identify
from trainshed.services.platform import Platform
from trainshed.services.runner_gateway import Waiting, check_in, take_report
from trainshed.services.runner_mirror import Mirror, silent_nodes

_gateway = ModuleType("gateway_tests")
SourceFileLoader("gateway_tests", str(Path(__file__).with_name("test_runner_gateway.py"))).exec_module(
    _gateway
)
make_runner, claim, NOW = _gateway.make_runner, _gateway.claim, _gateway.NOW
platform = _gateway.platform


def said(node: int, code: str = "no_room", **more: Any) -> FailedStart:
    return FailedStart(node, more.pop("nonce", ""), "n7", code, more.pop("message", "no room"), **more)


def ending_of(platform: Platform, runner: AttemptCaller, node: int) -> dict[str, Any]:
    folder = platform.home.run_folder(runner.job.id, 1, node)
    found: dict[str, Any] = json.loads(folder.status.read_bytes())["ending"]
    return found


def test_the_words_end_the_node_and_name_its_machine(platform: Platform) -> None:
    runner = make_runner(platform)
    take_failed_start(platform, runner, said(1, hint="make some"))
    ending = ending_of(platform, runner, 1)
    assert (ending["cause"], ending["code"], ending["message"]) == ("node", "no_room", "n7: no room")
    assert ending["hint"] == "make some"
    # The first words stay.
    take_failed_start(platform, runner, said(1, "no_python"))
    assert ending_of(platform, runner, 1)["code"] == "no_room"
    take_failed_start(platform, runner, said(0, "no_python"))
    assert ending_of(platform, runner, 0)["cause"] == "platform"


def test_nobody_speaks_for_a_node_that_another_has(platform: Platform) -> None:
    runner = make_runner(platform)
    assert isinstance(check_in(platform, runner, claim(0), NOW), Waiting)
    with pytest.raises(Conflict):
        take_failed_start(platform, runner, said(0, nonce="ab" * 16))
    take_failed_start(platform, runner, said(0, "stopped", nonce=claim(0).nonce, message="enough"))
    assert ending_of(platform, runner, 0)["outcome"] == "stopped"
    for wrong in (said(2), said(-1), said(1, "Rm -rf")):
        with pytest.raises(InvalidInput):
            take_failed_start(platform, runner, wrong)


def test_who_waits_for_others_hears_of_a_stop(platform: Platform) -> None:
    runner = make_runner(platform)
    folder = platform.home.run_folder(runner.job.id, 1, 0)
    folder.path.mkdir(parents=True)
    folder.stop.write_text('{"reason": "enough"}')
    answer = check_in(platform, runner, claim(0), NOW)
    assert isinstance(answer, Waiting) and answer.stop == {"reason": "enough"}


def test_half_of_one_start_and_half_of_another_never_meet(platform: Platform) -> None:
    runner = make_runner(platform)
    assert isinstance(check_in(platform, runner, claim(0, run="17"), NOW), Waiting)
    for other in ("18", "17.1"):
        with pytest.raises(Conflict, match="job 17"):
            check_in(platform, runner, claim(1, run=other), NOW)
    assert Mirror(platform.home, runner.job.id, 1, 1).read_claim() is None
    assert not isinstance(check_in(platform, runner, claim(1, run="17"), NOW), Waiting)


def test_a_late_report_changes_no_last_one_but_a_last_one_counts(platform: Platform) -> None:
    runner = make_runner(platform, 1)
    check_in(platform, runner, claim(0), NOW)
    mirror = Mirror(platform.home, runner.job.id, 1, 0)
    working = _gateway.report_of(runner, 0)
    lost = {**working, "stage": "ended", "ending": {"outcome": "failed", "code": "runner_lost"}}
    assert mirror.write_report(lost)
    take_report(platform, runner, 0, claim(0).nonce, report=working)
    assert ending_of(platform, runner, 0)["code"] == "runner_lost"
    # It was not lost after all: what it says itself is the truth, as long as nobody has acted on the other.
    done = {**working, "stage": "ended", "ending": {"outcome": "completed"}}
    take_report(platform, runner, 0, claim(0).nonce, report=done)
    assert ending_of(platform, runner, 0)["outcome"] == "completed"


@pytest.mark.parametrize(
    "change",
    [{"phase": Phase.FAILED}, {"attempt": 2}, {"phase": Phase.COMPLETED, "deleted_at": NOW}],
    ids=["ended", "another attempt", "deleted"],
)
def test_the_token_of_an_attempt_that_is_over_opens_nothing(
    platform: Platform, change: dict[str, Any]
) -> None:
    runner = make_runner(platform, 1)
    token = attempt_token(platform, runner.job.id, 1)
    assert authenticate_attempt(platform, token).job.id == runner.job.id
    with begin(platform.engine) as connection:
        assert change_job(connection, runner.job, **change) is not None
    with pytest.raises(NotAuthenticated):
        authenticate_attempt(platform, token)


def test_the_home_is_not_touched_by_strangers(platform: Platform, home: Home) -> None:
    runner = make_runner(platform, 1)
    with pytest.raises(Conflict):
        take_report(platform, replace(runner), 0, "cd" * 16, report=_gateway.report_of(runner, 0))
    assert not platform.home.run_folder(runner.job.id, 1, 0).status.exists()


def test_a_node_that_is_silent_for_long_is_told_of(platform: Platform) -> None:
    runner = make_runner(platform)
    for node in (0, 1):
        check_in(platform, runner, claim(node), NOW)
        os.utime(platform.home.run_folder(runner.job.id, 1, node).heard, (NOW - 5, NOW - 5))

    def silent() -> list[tuple[int, str, float]]:
        return silent_nodes(platform.home, runner.job.id, 1, 2, NOW)

    assert silent() == []
    os.utime(platform.home.run_folder(runner.job.id, 1, 1).heard, (NOW - 300, NOW - 300))
    assert silent() == [(1, "n2", 300.0)]
    caller = login(platform)
    told = explain_job(platform, caller, runner.job.id)
    assert "Node 1 (n2) has not been heard for 5 min: its log is late." in told.facts
    assert "public_url" in told.hint
    # Who has ended has nothing more to say.
    done = {**_gateway.report_of(runner, 1), "stage": "ended", "ending": {"outcome": "completed"}}
    Mirror(platform.home, runner.job.id, 1, 1).write_report(done)
    assert silent() == []


def login(platform: Platform) -> Caller:
    with read(platform.engine) as connection:
        user, workspace = list_users(connection)[0], list_workspaces(connection)[0]
        return identify(connection, user.id, workspace.id, frozenset({"jobs:*"}))
