"""Nodes of an attempt check in, are told what to run, and report; nobody else may speak for them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from trainshed.db.attempts import AttemptRow, attempt_of, insert_attempt
from trainshed.db.engine import begin, read
from trainshed.db.jobs import JobRow, insert_job
from trainshed.db.nodes import replace_nodes
from trainshed.db.users import list_users
from trainshed.db.workspaces import list_workspaces
from trainshed.durable import write_durably
from trainshed.model.attempt import Ending, NodeReport, StageEntry
from trainshed.model.errors import Conflict, InvalidInput
from trainshed.model.flavor import Device, Node
from trainshed.model.home import Home
from trainshed.model.launch_plan import to_json
from trainshed.model.phase import Phase
from trainshed.model.pools import Pool
from trainshed.model.settings import Settings
from trainshed.services.attempt_tokens import AttemptCaller
from trainshed.services.log_source import LogSource
from trainshed.services.platform import Platform, open_platform
from trainshed.services.runner_gateway import Ticket, Waiting, check_in, take_report, ticket_to_json
from trainshed.services.runner_mirror import Claim, Piece
from trainshed.services.setup import first_start
from trainshed.services.slurm import bring_mirror_home

NOW = 1_700_000_000.0
DEVICES = tuple(Device("ascend", index, pretend=True) for index in range(8))


@pytest.fixture
def platform(home: Home) -> Iterator[Platform]:
    settings = Settings(
        public_url="http://shed.example:7480",
        public_obs_url="http://shed.example:7481",
        pools=(Pool("lab", engine="slurm"),),
    )
    platform = replace(open_platform(home, settings), clock=lambda: NOW)
    first_start(platform)
    with begin(platform.engine) as connection:
        replace_nodes(connection, "slurm", [Node("n1", "lab", 64, 262144, DEVICES, engine="slurm")])
    yield platform
    platform.close()


def make_runner(platform: Platform, nodes: int = 2, flavor: str = "cpu.1", **spec: Any) -> AttemptCaller:
    job_id = str(uuid.uuid4())
    with read(platform.engine) as connection:
        workspace, user = list_workspaces(connection)[0], list_users(connection)[0]
    data = {"boot": "train.py", "nodes": nodes, "pool": "lab", **spec}
    job = JobRow(
        job_id, workspace.id, f"job-{job_id[:8]}", user.id, Phase.RUNNING, data, flavor, nodes, NOW,
        attempt=1, code_bucket=".code", code_prefix=f"{job_id}/",
    )  # fmt: skip
    attempt = AttemptRow(job_id, 1, "slurm", [], "running", NOW)
    with begin(platform.engine) as connection:
        insert_job(connection, job)
        insert_attempt(connection, attempt)
    return AttemptCaller(job, attempt)


def claim(node: int, **more: Any) -> Claim:
    return Claim(node, f"{node:032x}", f"n{node + 1}", f"10.0.0.{node + 1}", **more)


def report_of(runner: AttemptCaller, node: int, **more: Any) -> dict[str, Any]:
    report: dict[str, Any] = to_json(
        NodeReport(runner.job.id, 1, node, 1, more.pop("stage", "training"), **more)
    )
    return report


def test_all_nodes_get_one_plan_with_their_real_addresses(platform: Platform) -> None:
    runner = make_runner(platform, 2, "ascend.4", environment={"A": "b"})
    waiting = check_in(platform, runner, claim(0, devices=(4, 5, 6, 7)), NOW)
    assert waiting == Waiting((1,))
    last = check_in(platform, runner, claim(1, devices=(0, 1, 2, 3)), NOW)
    first = check_in(platform, runner, claim(0, devices=(4, 5, 6, 7)), NOW)
    assert isinstance(first, Ticket) and isinstance(last, Ticket)
    assert [peer.address for peer in first.launch.peers] == ["10.0.0.1", "10.0.0.2"]
    assert (first.launch.devices, last.launch.devices) == ((4, 5, 6, 7), (0, 1, 2, 3))
    assert first.launch.port_base == last.launch.port_base and first.launch.network == "open"
    variables = first.launch.processes[0].variables
    assert variables["ASCEND_RT_VISIBLE_DEVICES"] == "4,5,6,7"
    assert variables["TRAINSHED_OBS_URL"] == "http://shed.example:7481"
    assert any("10.0.0.2" in file.content for file in first.launch.files)
    assert set(first.secrets) >= {"TRAINSHED_TOKEN", "AWS_SECRET_ACCESS_KEY"}
    sent = ticket_to_json(first)
    assert json.loads(json.dumps(sent))["site"]["obs_url"] == "http://shed.example:7481"
    assert platform.home.run_folder(runner.job.id, 1, 1).launch.exists()
    with read(platform.engine) as connection:
        row = attempt_of(connection, runner.job.id, 1)
    assert row is not None and [place["node"] for place in row.placements] == ["n1", "n2"]
    assert row.placements[0]["devices"] == [4, 5, 6, 7]


def test_nodes_that_share_a_machine_beside_others_are_refused_each_time(platform: Platform) -> None:
    runner = make_runner(platform, 3)
    claims = [
        replace(claim(node), address=f"10.0.0.{node // 2 + 1}", machine=f"{node // 2}") for node in range(3)
    ]
    for node in (0, 1):
        assert isinstance(check_in(platform, runner, claims[node], NOW), Waiting)
    for node in (2, 0, 1):
        with pytest.raises(InvalidInput, match="n1 and n2 are one machine"):
            check_in(platform, runner, claims[node], NOW)


def test_one_node_keeps_its_own_network(platform: Platform) -> None:
    runner = make_runner(platform, 1)
    ticket = check_in(platform, runner, claim(0), NOW)
    assert isinstance(ticket, Ticket) and ticket.launch.network == "platform"
    assert ticket.launch.processes[0].variables["TRAINSHED_URL"] == "http://127.0.0.1:7480"
    assert ticket.site.ports == (("shed.example", 7480), ("shed.example", 7481))


def test_busy_ports_are_left_alone(platform: Platform) -> None:
    runner = make_runner(platform, 2)
    check_in(platform, runner, claim(0, busy_ports=tuple(range(20000, 32000))), NOW)
    ticket = check_in(platform, runner, claim(1), NOW)
    assert isinstance(ticket, Ticket) and ticket.launch.port_base >= 32000


def test_the_first_process_has_the_node(platform: Platform) -> None:
    runner = make_runner(platform, 1)
    check_in(platform, runner, claim(0), NOW)
    rival = replace(claim(0), nonce="f" * 32, host="rival")
    with pytest.raises(Conflict, match="another process, on n1"):
        check_in(platform, runner, rival, NOW)
    with pytest.raises(Conflict):
        take_report(platform, runner, 0, rival.nonce, pieces=[Piece("logs/rank-0.log", 0, b"x")])
    with pytest.raises(InvalidInput):
        check_in(platform, runner, claim(1), NOW)


def test_pieces_may_come_twice_and_the_end_stays(platform: Platform) -> None:
    runner = make_runner(platform, 1)
    check_in(platform, runner, claim(0), NOW)
    nonce = claim(0).nonce

    def send(offset: int, data: bytes) -> dict[str, int]:
        return take_report(platform, runner, 0, nonce, pieces=[Piece("logs/rank-0.log", offset, data)]).sizes

    send(0, b"one\n")
    send(0, b"one\n")
    assert send(4, b"two\n")["logs/rank-0.log"] == 8
    assert LogSource(platform, runner.job.id, 1, 0, "rank-0").read(0, 100) == b"one\ntwo\n"
    ended = report_of(runner, 0, stage="ended", ending=Ending("completed"))
    take_report(platform, runner, 0, nonce, report=ended)
    # A late report of a runner at work does not undo its end.
    take_report(platform, runner, 0, nonce, report=report_of(runner, 0))
    status = json.loads(platform.home.run_folder(runner.job.id, 1, 0).status.read_bytes())
    assert status["ending"]["outcome"] == "completed"


@pytest.mark.parametrize(
    "path",
    [
        "launch.json",
        "../node-1/status.json",
        "logs/../stop",
        "logs/files/../../stop",
        "/etc/x",
        "claim.json",
        "logs/files/.x",
    ],
)
def test_no_other_file_can_be_written(platform: Platform, path: str) -> None:
    runner = make_runner(platform, 1)
    check_in(platform, runner, claim(0), NOW)
    with pytest.raises(InvalidInput):
        take_report(platform, runner, 0, claim(0).nonce, pieces=[Piece(path, 0, b"x")])


def test_a_report_of_another_node_or_none_at_all_is_refused(platform: Platform) -> None:
    runner = make_runner(platform, 2)
    check_in(platform, runner, claim(0), NOW)
    for report in (report_of(runner, 1), {"stage": "training"}, {**report_of(runner, 0), "timeline": 3}):
        with pytest.raises(InvalidInput):
            take_report(platform, runner, 0, claim(0).nonce, report=report)


def test_a_clock_that_is_wrong_is_put_right(platform: Platform) -> None:
    runner = make_runner(platform, 1)
    check_in(platform, runner, claim(0), NOW - 3600)
    report = report_of(
        runner,
        0,
        started_at=NOW - 3600,
        timeline=(StageEntry(NOW - 3590, "training"),),
        silent_since=0.0,
        idle_since=NOW - 3580,
    )
    take_report(platform, runner, 0, claim(0).nonce, report=report)
    status = json.loads(platform.home.run_folder(runner.job.id, 1, 0).status.read_bytes())
    assert (status["started_at"], status["timeline"][0]["time"]) == (NOW, NOW + 10)
    assert (status["silent_since"], status["idle_since"]) == (0.0, NOW + 20)


def test_nodes_begin_together_and_hear_of_a_stop(platform: Platform) -> None:
    runner = make_runner(platform, 2)
    for node in (0, 1):
        check_in(platform, runner, claim(node), NOW)
    assert not take_report(platform, runner, 0, claim(0).nonce, ready=True).go
    assert take_report(platform, runner, 1, claim(1).nonce, ready=True).go
    assert take_report(platform, runner, 0, claim(0).nonce).go
    asked = {"reason": "enough", "outcome": "stopped"}
    write_durably(platform.home.run_folder(runner.job.id, 1, 0).stop, asked)
    assert take_report(platform, runner, 0, claim(0).nonce).stop == asked
    assert take_report(platform, runner, 1, claim(1).nonce).stop is None


def test_what_had_come_of_a_lost_node_is_archived_without_secrets(platform: Platform) -> None:
    runner = make_runner(platform, 1, log_url="obs://logs/here/")
    platform.store.create_bucket("logs", runner.job.workspace_id)
    ticket = check_in(platform, runner, claim(0), NOW)
    assert isinstance(ticket, Ticket)
    said = f"token {ticket.secrets['TRAINSHED_TOKEN']} line\n".encode()
    pieces = [Piece("logs/rank-0.log", 0, said), Piece("metrics.jsonl", 0, b"{}\n")]
    take_report(platform, runner, 0, claim(0).nonce, pieces=pieces)
    folder = platform.home.run_folder(runner.job.id, 1, 0)
    assert bring_mirror_home(folder, "A machine of the job failed.") == ""
    assert bring_mirror_home(folder) == ""
    # Where the job wanted its log, it is as far as it had come; its last line says why it ends there.
    exported = {info.key.rpartition("/")[2]: info.key for info in platform.store.walk("logs", "here/")}
    with platform.store.open("logs", exported["rank-0.log"], 0) as file:
        assert file.read().endswith(b" line\n")
    with platform.store.open("logs", exported["platform.log"], 0) as file:
        assert b"A machine of the job failed." in file.read()
    keys = [info.key for info in platform.store.walk(".jobs", f"{runner.job.id}/attempt-1/node-0/")]
    assert any("rank-0/" in key for key in keys) and any(key.endswith("metrics.jsonl") for key in keys)
    log = LogSource(platform, runner.job.id, 1, 0, "rank-0").read(0, 1000)
    assert ticket.secrets["TRAINSHED_TOKEN"].encode() not in log and log.endswith(b" line\n")
    assert not folder.secrets.exists()


def test_the_copy_of_a_long_log_stays_short_and_whole(platform: Platform) -> None:
    runner = make_runner(platform, 1)
    check_in(platform, runner, claim(0), NOW)
    segment, half = 16 << 20, 1 << 19
    line = b"0123456789abcde\n"
    # What the node itself archives, before the pieces behind it come.
    key = f"{runner.job.id}/attempt-1/node-0/rank-0/{0:016d}"
    platform.store.put(".jobs", key, line * (segment // len(line)))
    for offset in range(0, segment + 2 * half, half):
        piece = Piece("logs/rank-0.log", offset, line * (half // len(line)))
        take_report(platform, runner, 0, claim(0).nonce, pieces=[piece])
    spool = platform.home.run_folder(runner.job.id, 1, 0).rank_log(0).stat()
    assert spool.st_size == segment + 2 * half and spool.st_blocks * 512 < 4 * half
    source = LogSource(platform, runner.job.id, 1, 0, "rank-0")
    assert source.read(0, 1 << 30) == line * ((segment + 2 * half) // len(line))
