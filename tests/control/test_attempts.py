"""How attempts end and what follows: warnings, graceful stops, time limits, idleness, preemption; with real runners."""

from __future__ import annotations

import json
import os
import signal
import textwrap
import uuid
from typing import Any

import pytest

from trainshed.db import notifications as db
from trainshed.db.engine import begin
from trainshed.db.jobs import change_job, job_by_id
from trainshed.db.notifications import TargetRow
from trainshed.model.phase import Phase

pytestmark = pytest.mark.slow

SAVING = textwrap.dedent(
    """
    import os, signal, sys, time
    folder = os.environ.get("TRAINSHED_CHECKPOINT", "/tmp")
    def save(number, frame):
        name = signal.Signals(number).name
        with open(f"{folder}/saved-{os.environ.get('RANK')}", "a") as file:
            file.write(name + " ")
        print("saved after", name, flush=True)
        if number == signal.SIGTERM:
            time.sleep(0.3)
            sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    signal.signal(signal.SIGUSR1, save)
    found = sorted(os.listdir(folder)) if "TRAINSHED_CHECKPOINT" in os.environ else []
    print("ready", found, flush=True)
    for _ in range(600):
        if os.environ["TRAINSHED_ATTEMPT"] == "2":
            sys.exit(0)
        time.sleep(0.1)
    """
)


def runner_of(station: Any, job_id: str, attempt: int = 1) -> int:
    """The process id of a node's runner."""
    pid = int(json.loads(station.run_folder(job_id, attempt).status.read_text())["pid"])
    assert pid > 1
    return pid


def watch_events(station: Any, *events: str) -> None:
    """Want to be told of events."""
    place = "https://example.org/"
    own = (station.workspace.id, station.user.id, "user", "webhook", place, list(events), b"", 0.0)
    with begin(station.platform.engine) as connection:
        db.insert_target(connection, TargetRow(uuid.uuid4().hex, *own))


def told(station: Any) -> list[tuple[str, str]]:
    """The messages that are on their way: job and event."""
    found = []
    with begin(station.platform.engine) as connection:
        while (message := db.claim_due(connection, 1e12, 1e12)) is not None:
            found.append((message.job_id, message.event))
    return sorted(found, key=lambda item: item[1])


def test_a_script_that_leaves_with_0_when_it_is_stopped_has_not_completed(station: Any) -> None:
    job_id = station.submit(SAVING)
    station.wait_for_line(job_id, b"ready")
    station.ask_stop(job_id)
    assert station.wait(job_id).phase is Phase.TERMINATED
    # The same from outside the platform, as a machine that goes down: another attempt follows.
    job_id = station.submit(SAVING, restarts=1)
    station.wait_for_line(job_id, b"ready")
    os.kill(runner_of(station, job_id), signal.SIGTERM)
    job = station.wait(job_id)
    assert (job.phase, job.attempt) == (Phase.COMPLETED, 2)
    assert b"ready ['saved-0']" in station.log(job_id, attempt=2)
    first = station.attempts(job_id)[0]
    assert first.ending is not None and first.ending["code"] == "ended_from_outside"


def test_a_warning_comes_once_before_the_time_limit_and_the_job_goes_on_after_it(station: Any) -> None:
    job_id = station.submit(
        SAVING, time_limit=10, warn_before=2, restarts=1, on_time_limit="restart", grace=10, processes=2
    )
    logs = [station.run_folder(job_id).rank_log(rank) for rank in (0, 1)]
    station.until(lambda: all(log.exists() and b"ready" in log.read_bytes() for log in logs))
    # A runner that is halted over the moment of the warning makes up for it.
    pid = runner_of(station, job_id)
    os.kill(pid, signal.SIGSTOP)
    try:
        station.until(lambda: False, 12)
    except AssertionError:
        os.kill(pid, signal.SIGCONT)
    job = station.wait(job_id)
    assert (job.phase, job.attempt) == (Phase.COMPLETED, 2)
    for rank in (0, 1):
        log = station.log(job_id, f"rank-{rank}").decode()
        assert log.count("SIGUSR1") == 1 and log.count("SIGTERM") == 1, log
    assert b"ready ['saved-0', 'saved-1']" in station.log(job_id, attempt=2)
    story = [event.message for event in station.events(job_id)]
    assert any("SIGUSR1 sent to 2 processes" in words for words in story), story
    first = station.attempts(job_id)[0]
    assert first.ending is not None and (first.ending["cause"], first.ending["code"]) == (
        "limit",
        "time_limit",
    )


def test_processes_of_launchers_have_their_grace(station: Any) -> None:
    """A child in a session of its own behind a shell, as launchers start theirs."""
    job_id = station.submit("", {"save.py": SAVING}, command="setsid --wait python save.py; echo after")
    station.wait_for_line(job_id, b"ready")
    station.ask_stop(job_id)
    assert station.wait(job_id).phase is Phase.TERMINATED
    assert b"saved after SIGTERM" in station.log(job_id) and b"after\n" not in station.log(job_id)


def test_ranks_of_mpirun_have_their_grace_and_one_signal_each_on_every_node(station: Any) -> None:
    slow = SAVING.replace("time.sleep(0.3)", "time.sleep(4); print('done', flush=True)")
    job_id = station.submit(
        "",
        {"save.py": slow},
        command="mpirun --hostfile /job/hostfile -np 2 python save.py",
        worker_command="sleep 600",
        nodes=2,
        time_limit=200,
        warn_before=197,
    )
    station.until(lambda: station.run_folder(job_id).rank_log(0).exists(), 120)
    log = station.run_folder(job_id).rank_log(0)
    station.until(lambda: log.read_bytes().count(b"saved after SIGUSR1") == 2, 120, "no warning")
    station.ask_stop(job_id)
    assert station.wait(job_id).phase is Phase.TERMINATED
    said = station.log(job_id)
    assert [said.count(word) for word in (b"SIGUSR1", b"SIGTERM", b"done")] == [2, 2, 2], said.decode()


def test_an_idle_job_is_told_about_and_stopped_if_it_says_so(station: Any) -> None:
    watch_events(station, "idle", "failed")
    script = "import time\nprint('on', flush=True)\nwhile True:\n    time.sleep(0.5)\n    print('still', flush=True)\n"
    job_id = station.submit(script, idle_after=3, idle_action="stop", grace=1)
    job = station.wait(job_id)
    assert job.phase is Phase.FAILED and job.ending is not None
    assert (job.ending["cause"], job.ending["code"]) == ("limit", "idle"), job.ending
    assert "neither a device nor the processor for 3 s" in job.ending["message"]
    assert job.attempt == 1 and any("is idle" in event.message for event in station.events(job_id))
    assert told(station) == [(job_id, "failed"), (job_id, "idle")]


def test_a_job_that_waits_for_a_peer_or_loads_slowly_is_not_idle(station: Any) -> None:
    """Node 0 waits for node 1, which first computes and then gets data in drops; at last both sleep."""
    script = textwrap.dedent(
        """
        import os, socket, time
        if os.environ["TRAINSHED_NODE"] == "1":
            until = time.time() + 4
            while time.time() < until:
                sum(range(10000))
            server = socket.create_server(("127.0.0.1", 0))
            sender = socket.create_connection(server.getsockname())
            reader, _ = server.accept()
            for _ in range(20):
                sender.sendall(bytes(60_000))
                got = 0
                while got < 60_000:
                    got += len(reader.recv(60_000))
                time.sleep(0.5)
        else:
            time.sleep(10)
        print("worked", flush=True)
        time.sleep(600)
        """
    )
    job_id = station.submit(script, nodes=2, idle_after=4)
    station.wait_for_line(job_id, b"worked")
    assert not any("is idle" in event.message for event in station.events(job_id))
    station.until(lambda: station.job(job_id).detail == "training, idle", 120)
    station.ask_stop(job_id)
    station.wait(job_id)


@pytest.mark.parametrize("was_killed", [False, True])
def test_a_job_that_may_be_preempted_leaves_for_a_more_urgent_one_and_comes_back(
    station: Any, was_killed: bool
) -> None:
    watch_events(station, "preempted", "restarted")
    cores = int(station.control.engines["local"].capacity()[0].cpus)
    filling = f"cpu.{cores}"
    first = station.submit(SAVING, flavor=filling, preemptible=True)
    station.wait_for_line(first, b"ready")
    if was_killed:
        # The loop died after its decision and before it asked the job to leave: another one makes up for that.
        with begin(station.platform.engine) as connection:
            row = job_by_id(connection, first)
            assert row is not None and change_job(connection, row, wait={"yields_to": "a job", "reason": ""})
    urgent = station.submit("print('done')", flavor=filling, priority=10)
    assert station.wait(urgent).phase is Phase.COMPLETED
    job = station.wait(first)
    assert (job.phase, job.attempt, job.starts_without_launch) == (Phase.COMPLETED, 2, 1)
    assert b"saved after SIGTERM" in station.log(first) and b"['saved-0']" in station.log(first, attempt=2)
    ending = station.attempts(first)[0].ending
    assert ending is not None and (ending["cause"], ending["code"]) == ("node", "preempted")
    urgent_end, second_start = station.job(urgent).ended_at, station.attempts(first)[1].created_at
    assert urgent_end is not None and urgent_end <= second_start + 1
    assert told(station) == [(first, "preempted"), (first, "restarted")]
    story = [event.message for event in station.events(first)]
    assert was_killed or any("It leaves for a job of priority 10" in words for words in story), story
