"""One job's whole walk: from Creating to its end, with everything real but the HTTP in front."""

from __future__ import annotations

import json
import os
import signal
import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from trainshed.control.cleaning import discard_old_attempts
from trainshed.control.queue_view import load_queue
from trainshed.db.engine import read
from trainshed.model.phase import Phase
from trainshed.model.queue import plan_queue
from trainshed.runner.log_archive import ARCHIVE_BUCKET, archive_prefix

TRAIN = textwrap.dedent(
    """
    import argparse, json, os
    parser = argparse.ArgumentParser()
    for name in ("data", "model", "epochs"):
        parser.add_argument("--" + name)
    args = parser.parse_args()
    print("reading", sorted(os.listdir(args.data)), flush=True)
    for step in range(3):
        print(f"epoch: 1 step: {step}, loss is {1 / (step + 1)}", flush=True)
    with open(os.path.join(args.model, "model.json"), "w") as file:
        json.dump({"epochs": args.epochs, "environment": dict(os.environ)}, file)
    """
)
# Waits for the test's word, however long that takes on a busy machine.
GATE = textwrap.dedent(
    """
    import os, time
    out = os.environ["TRAINSHED_OUTPUT_OUT"]
    print("on", flush=True)
    while not os.path.exists(out + "/go"):
        time.sleep(0.02)
    os.remove(out + "/go")
    """
)


def test_a_job_completes_with_its_log_metrics_outputs_and_story(station: Any) -> None:
    store = station.platform.store
    store.put("results", "data/a.txt", b"a")
    store.put("results", "data/sub/b.txt", b"b")
    job_id = station.submit(
        TRAIN,
        parameters={"epochs": 3},
        inputs={"data": "obs://results/data/"},
        outputs={"model": "obs://results/out/"},
        log_url="obs://results/logs/",
    )
    job = station.wait(job_id)
    assert (job.phase, job.detail, job.attempt) == (Phase.COMPLETED, "", 1)
    log = station.log(job_id)
    assert log.startswith(b"reading ['a.txt', 'sub']\n") and log.endswith(b"loss is 0.3333333333333333\n")
    model = json.loads(station.result("out/model.json"))
    assert model["epochs"] == "3" and model["environment"]["RANK"] == "0"
    with store.open(ARCHIVE_BUCKET, archive_prefix(job_id, 1, 0) + "metrics.jsonl") as file:
        points = [json.loads(line) for line in file.read().splitlines()]
    assert [point["value"] for point in points if point["name"] == "loss"] == [1.0, 0.5, 1 / 3]
    assert station.result(f"logs/{job.name}/attempt-1/node-0/rank-0.log") == log
    story = [event.message for event in station.events(job_id)]
    for before, after in (
        ("snapshotted", "Attempt 1 starts"),
        ("staging", "training"),
        ("uploading", "Completed"),
    ):
        assert [i for i, m in enumerate(story) if before in m] < [
            i for i, m in enumerate(story) if after in m
        ]
    assert not station.run_folder(job_id).secrets.exists()


def test_a_failure_names_rank_line_fault_and_next_step(station: Any) -> None:
    job = station.wait(station.submit("import not_there\n", outputs={"out": "obs://results/f/"}))
    assert job.phase is Phase.FAILED and job.ending is not None
    assert (job.ending["cause"], job.ending["rank"], job.ending["exit_code"]) == ("user", 0, 1)
    assert job.ending["line"] == "ModuleNotFoundError: No module named 'not_there'"
    assert "requirements.txt" in job.ending["hint"]
    exit_seven = station.wait(station.submit("import sys; sys.exit(7)"))
    assert exit_seven.ending is not None and exit_seven.ending["exit_code"] == 7
    crash = station.wait(station.submit("import os; os.kill(os.getpid(), 11)"))
    assert crash.ending is not None and (crash.ending["code"], crash.ending["signal"]) == ("signal", 11)


def test_a_stop_gives_the_script_time_and_keeps_what_it_made(station: Any) -> None:
    script = textwrap.dedent(
        """
        import os, signal, sys, time
        def leave(*_):
            open(os.environ["TRAINSHED_OUTPUT_OUT"] + "/checkpoint", "w").write("saved")
            print("saved", flush=True)
            sys.exit(1)
        signal.signal(signal.SIGTERM, leave)
        print("ready", flush=True)
        time.sleep(600)
        """
    )
    job_id = station.submit(script, outputs={"out": "obs://results/stopped/"})
    station.wait_for_line(job_id, b"ready")
    station.ask_stop(job_id)
    job = station.wait(job_id)
    assert (
        job.phase is Phase.TERMINATED
        and job.ending is not None
        and job.ending["message"] == "stopped by a test"
    )
    assert station.log(job_id) == b"ready\nsaved\n"
    assert station.result("stopped/checkpoint") == b"saved"


def test_a_script_that_ignores_the_stop_is_killed_after_its_grace(station: Any) -> None:
    script = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(600)"
    job_id = station.submit(script, grace=1)
    station.wait_for_line(job_id, b"ready")
    station.ask_stop(job_id)
    assert station.wait(job_id).phase is Phase.TERMINATED


def test_a_waiting_job_is_stopped_and_says_why_it_waits(station: Any) -> None:
    cores = int(station.control.engines["local"].capacity()[0].cpus)
    blockers = [station.submit("import time; print('on', flush=True); time.sleep(600)") for _ in range(cores)]
    for blocker in blockers:
        station.wait_for_line(blocker, b"on")
    waiting = station.submit("print('never')")
    station.until(lambda: station.job(waiting).phase is Phase.PENDING)
    with read(station.platform.engine) as connection:
        queue = load_queue(connection, 0.0)
    (wait,) = plan_queue(queue.waiting, queue.held, queue.nodes, station.platform.clock()).waits
    assert wait.job_id == waiting and "free now" in wait.reason and "In use by" in wait.hint
    station.ask_stop(waiting)
    assert station.wait(waiting).phase is Phase.TERMINATED
    for blocker in blockers:
        station.ask_stop(blocker)
    for blocker in blockers:
        assert station.wait(blocker).phase is Phase.TERMINATED


def test_the_time_limit_ends_a_job_as_its_own_limit(station: Any) -> None:
    job = station.wait(station.submit("import time; time.sleep(600)", time_limit=1, grace=1, restarts=3))
    assert job.phase is Phase.FAILED and job.ending is not None
    assert (job.ending["cause"], job.ending["code"], job.attempt) == ("limit", "time_limit", 1)


def test_out_of_memory_is_told(make_station: Callable[..., Any]) -> None:
    station = make_station()
    node = station.control.engines["local"].capacity()[0]
    small = replace(node, memory_mb=256)
    station.control.engines["local"]._inventory = lambda: [small]  # type: ignore[attr-defined]
    station.start()
    job = station.wait(
        station.submit("x = bytearray(1 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('done')")
    )
    assert job.phase is Phase.FAILED and job.ending is not None
    assert job.ending["code"] == "out_of_memory" and "0.25 GiB" in job.ending["message"]


def test_a_killed_runner_fails_the_attempt_and_its_log_is_whole(station: Any) -> None:
    script = "import time\nfor i in range(100000):\n    print(i, flush=True)\n    time.sleep(0.001)"
    job_id = station.submit(script)
    station.wait_for_line(job_id, b"\n100\n")
    os.kill(json.loads(station.run_folder(job_id).status.read_text())["pid"], signal.SIGKILL)
    job = station.wait(job_id)
    assert job.phase is Phase.FAILED and job.ending is not None
    assert (job.ending["cause"], job.ending["code"]) == ("platform", "runner_lost")
    log = station.log(job_id)
    numbers = [int(line) for line in log.split(b"\n")[:-1]]
    assert numbers == list(range(len(numbers))) and len(numbers) > 100


def test_a_killed_runner_is_followed_by_another_attempt_where_the_job_allows_it(station: Any) -> None:
    script = textwrap.dedent(
        """
        import os, time
        print("attempt", os.environ["TRAINSHED_ATTEMPT"], flush=True)
        time.sleep(600 if os.environ["TRAINSHED_ATTEMPT"] == "1" else 0)
        """
    )
    job_id = station.submit(script, restarts=1)
    station.wait_for_line(job_id, b"attempt 1")
    os.kill(json.loads(station.run_folder(job_id).status.read_text())["pid"], signal.SIGKILL)
    job = station.wait(job_id)
    assert (job.phase, job.attempt) == (Phase.COMPLETED, 2)
    assert [attempt.state for attempt in station.attempts(job_id)] == ["ended", "ended"]
    assert (station.log(job_id), station.log(job_id, attempt=2)) == (b"attempt 1\n", b"attempt 2\n")


def test_jobs_end_truly_while_the_control_loop_is_away(station: Any) -> None:
    good = station.submit(GATE + "print('off')", outputs={"out": "obs://results/away/"})
    station.wait_for_line(good, b"on")
    station.halt()
    station.open_gate(good)
    folder = station.run_folder(good)
    station.until(lambda: b'"ending": {' in folder.status.read_bytes())
    assert station.job(good).phase is Phase.RUNNING
    station.start()
    assert station.wait(good).phase is Phase.COMPLETED
    assert station.log(good) == b"on\noff\n"


def test_an_attempt_whose_submit_never_happened_is_submitted_by_the_next_pass(station: Any) -> None:
    engine = station.control.engines["local"]
    real, calls = engine.submit, []

    def fail_once(launch: object) -> None:
        calls.append(launch)
        if len(calls) == 1:
            raise OSError("the machine hiccups")
        real(launch)

    engine.submit = fail_once
    job = station.wait(station.submit("print('once')"))
    assert (job.phase, job.attempt, len(calls)) == (Phase.COMPLETED, 1, 2)


def test_every_byte_of_a_log_survives(station: Any) -> None:
    script = textwrap.dedent(
        """
        import os, random
        data = random.Random(1).randbytes(3_000_000) + b"\\r50%\\r100%\\n" + b"x" * 5_000_000 + b"\\nno newline at end"
        view = memoryview(data)
        while view:
            view = view[os.write(1, view[:70000]):]
        """
    )
    job_id = station.submit(script)
    assert station.wait(job_id).phase is Phase.COMPLETED
    import random

    expected = (
        random.Random(1).randbytes(3_000_000) + b"\r50%\r100%\n" + b"x" * 5_000_000 + b"\nno newline at end"
    )
    assert station.log(job_id) == expected


def test_a_long_log_takes_no_room_behind_its_upload(make_station: Callable[..., Any]) -> None:
    station = make_station(log_segment_mb=1)
    station.start()
    script = "import os, time\nfor i in range(40):\n    os.write(1, b'y' * 1048575 + b'\\n')\n    time.sleep(0.05)\nprint('wait', flush=True)\ntime.sleep(600)"
    job_id = station.submit(script)
    log = station.run_folder(job_id).rank_log(0)
    station.until(lambda: log.exists() and log.stat().st_size >= 40 << 20, 150)
    station.until(lambda: log.stat().st_blocks * 512 < 4 << 20, what="the spool keeps its blocks")
    station.ask_stop(job_id)
    station.wait(job_id)
    assert len(station.log(job_id)) == (40 << 20) + 5


def test_secrets_do_not_reach_the_archive(station: Any) -> None:
    job_id = station.submit(
        "import os; print(os.environ['TRAINSHED_TOKEN'], os.environ['TRAINSHED_SECRET_KEY'])"
    )
    assert station.wait(job_id).phase is Phase.COMPLETED
    log = station.log(job_id)
    assert b"tsh_" not in log and set(log) == set(b"* \n")


def test_a_link_among_the_outputs_is_not_followed(station: Any) -> None:
    database = str(station.home.path / "trainshed.sqlite")
    script = textwrap.dedent(
        f"""
        import os
        out = os.environ["TRAINSHED_OUTPUT_OUT"]
        os.symlink({database!r}, out + "/database")
        os.symlink("/etc", out + "/etc")
        os.symlink({str(station.home.path)!r}, out + "/home")
        open(out + "/real", "w").write("real")
        """
    )
    job_id = station.submit(script, outputs={"out": "obs://results/links/"})
    assert station.wait(job_id).phase is Phase.COMPLETED
    keys = [info.key for info in station.platform.store.walk("results", "links/")]
    assert keys == ["links/real"]
    assert b"left out" in station.log(job_id, "platform")


def test_an_output_folder_cannot_be_replaced_by_a_link(station: Any) -> None:
    script = textwrap.dedent(
        """
        import os
        out = os.environ["TRAINSHED_OUTPUT_OUT"]
        for act in (lambda: os.rmdir(out), lambda: os.rename(out, out + "-old"), lambda: os.symlink("/etc", out)):
            try:
                act()
                print("allowed")
            except OSError:
                print("refused")
        """
    )
    job_id = station.submit(script, outputs={"out": "obs://results/gone/"})
    assert station.wait(job_id).phase is Phase.COMPLETED
    assert station.log(job_id) == b"refused\n" * 3
    assert list(station.platform.store.walk("results", "gone/")) == []


def test_one_workspace_uid_cannot_see_another_jobs_folders(station: Any) -> None:
    first = station.submit("import time; print('on', flush=True); time.sleep(600)")
    station.wait_for_line(first, b"on")
    probe = station.submit(
        f"import os\nfor p in ({str(station.home.path)!r}, '/root', '/etc/shadow'):\n    print(p, os.path.exists(p))\nprint([p for p in os.listdir('/proc') if p.isdigit()])"
    )
    assert station.wait(probe).phase is Phase.COMPLETED
    lines = station.log(probe).decode().splitlines()
    assert lines[0].endswith("False") and lines[2].endswith("False")
    assert len(json.loads(lines[3].replace("'", '"'))) <= 3
    station.ask_stop(first)
    station.wait(first)


def test_a_missing_input_and_a_bad_requirement_are_the_users_fault(station: Any) -> None:
    lost_input = station.wait(station.submit("print(1)", inputs={"data": "obs://results/nothing/"}))
    assert (
        lost_input.phase is Phase.FAILED
        and lost_input.ending is not None
        and lost_input.ending["cause"] == "user"
    )
    bad = station.wait(station.submit("print(1)", {"requirements.txt": "trainshed-no-such-package==99.9\n"}))
    assert bad.phase is Phase.FAILED and bad.ending is not None
    assert "trainshed-no-such-package" in bad.ending["message"] and bad.attempt == 0


def test_a_bucket_that_changed_hands_is_gone_for_the_job(station: Any) -> None:
    store = station.platform.store
    store.create_bucket("foreign", "w" * 32)
    store.put("foreign", "data/secret.txt", b"of another tenant")
    reader = station.wait(station.submit("print(1)", inputs={"data": "obs://foreign/data/"}))
    assert reader.phase is Phase.FAILED and "foreign" in reader.ending["message"]
    script = "import os; open(os.environ['TRAINSHED_OUTPUT_OUT'] + '/x', 'w').write('x')"
    writer = station.wait(
        station.submit(script, outputs={"out": "obs://foreign/out/"}, log_url="obs://foreign/")
    )
    assert writer.phase is Phase.FAILED and writer.ending["code"] == "output"
    assert [info.key for info in store.walk("foreign", "")] == ["data/secret.txt"]


def test_what_could_not_be_brought_home_is_kept_and_brought_later(make_station: Callable[..., Any]) -> None:
    station = make_station(keep_run_folders_hours=0)
    station.start()
    store = station.platform.store
    store.create_bucket("later", station.workspace.id)
    job_id = station.submit(GATE + "open(out + '/x', 'w').write('x')", outputs={"out": "obs://later/"})
    station.wait_for_line(job_id, b"on")
    store.delete_bucket("later")
    station.open_gate(job_id)
    job = station.wait(job_id)
    assert (job.phase, job.ending["code"]) == (Phase.FAILED, "output")
    assert (station.run_folder(job_id).root / "outputs" / "out" / "x").exists()
    store.create_bucket("later", station.workspace.id)

    def came_home() -> bool:
        discard_old_attempts(station.control)
        return not station.run_folder(job_id).path.exists()

    station.until(came_home, 90, "the outputs do not come home")
    assert [info.key for info in store.walk("later", "")] == ["x"]
    assert station.job(job_id).ending == job.ending


def test_several_ranks_and_nodes(make_station: Callable[..., Any]) -> None:
    station = make_station(rehearse="ascend:4")
    station.start()
    script = "import os\nprint(os.environ['RANK'], os.environ['WORLD_SIZE'], os.environ['LOCAL_RANK'], os.environ['TRAINSHED_NODE'])"
    job_id = station.submit(script, flavor="ascend.2", nodes=2)
    assert station.wait(job_id).phase is Phase.COMPLETED
    lines = [station.log(job_id, f"rank-{rank}", node=rank // 2) for rank in range(4)]
    assert lines == [b"0 4 0 0\n", b"1 4 1 0\n", b"2 4 0 1\n", b"3 4 1 1\n"]


def test_one_failing_rank_ends_the_others_and_is_named(make_station: Callable[..., Any]) -> None:
    station = make_station(rehearse="ascend:4")
    station.start()
    script = "import os, sys, time\nif os.environ['RANK'] == '2': sys.exit(5)\ntime.sleep(600)"
    job = station.wait(station.submit(script, flavor="ascend.2", nodes=2, grace=1))
    assert job.phase is Phase.FAILED and job.ending is not None
    assert (job.ending["rank"], job.ending["exit_code"]) == (2, 5)


@pytest.mark.parametrize("command", ["echo hello; exit 0", "cat /job/code/train.py"])
def test_a_command_runs_in_the_code_folder(station: Any, command: str) -> None:
    assert station.wait(station.submit("", command=command)).phase is Phase.COMPLETED
