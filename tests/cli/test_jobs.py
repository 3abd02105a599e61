"""The commands about jobs, against a real platform that really runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from trainshed.cli.main import cli

pytestmark = pytest.mark.slow

Run = Callable[..., Result]

TRAIN = """
import os, sys, time
sys.stdout.buffer.write(b"\\xff\\x00 10%\\r100%\\n")
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], *sys.argv[1:], flush=True)
for step in range(5):
    print(f"step {step} loss: {1 / (step + 1):.3f}")
if "--fail=yes" in sys.argv:
    raise ValueError("this batch is odd")
if "--sleep=yes" in sys.argv:
    print("sleeping", flush=True)
    time.sleep(120)
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, support: Any) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("platform") / "home"
    try:
        yield support.start_platform(path, "--rehearse", "ascend:2")
    finally:
        support.stop_platform(path)


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("code")
    (folder / "train.py").write_text(TRAIN)
    return folder


@pytest.fixture
def run(platform: Any) -> Run:
    def invoke(*arguments: str | Path) -> Result:
        environment = {
            "TRAINSHED_HOME": str(platform.home.path),
            "TRAINSHED_URL": "",
            "TRAINSHED_TOKEN": "",
            "COLUMNS": "80",
        }
        return CliRunner().invoke(cli, [str(word) for word in arguments], env=environment)

    return invoke


def test_follow_a_job_to_its_good_end(run: Run, code: Path) -> None:
    result = run(
        "run", "--code", code, "--boot", "train.py", "--param", "lr=1e-3", "--name", "good", "--follow"
    )
    assert result.exit_code == 0, result.output
    # Exactly what the script wrote, and nothing else.
    assert result.stdout_bytes.startswith(b"\xff\x00 10%\r100%\nrank 0 of 1 --lr=1e-3\nstep 0 loss: 1.000\n")
    assert result.stdout_bytes.endswith(b"step 4 loss: 0.200\n")
    assert "good: Completed in" in result.stderr
    again = run("logs", "good", "--rank", "0")
    assert again.stdout_bytes == result.stdout_bytes
    both = run("logs", "good")
    assert both.stdout_bytes == result.stdout_bytes
    assert "[platform]" in both.stderr
    assert run("logs", "good", "-f").stdout_bytes == result.stdout_bytes
    shown = run("show", "good")
    assert "Completed" in shown.stdout and "lr=1e-3" in shown.stdout
    assert json.loads(run("show", "good", "--json").stdout)["phase"] == "Completed"
    assert "Completed" in run("explain", "good").stdout
    table = run("metrics", "good")
    assert "loss" in table.stdout and "█" in table.stdout
    assert "0.2" in run("metrics", "good", "--points").stdout


def test_follow_a_job_to_its_bad_end(run: Run, code: Path) -> None:
    result = run("run", "--code", code, "--boot", "train.py", "--param", "fail=yes", "--name", "bad", "-f")
    assert result.exit_code == 1
    assert "ValueError: this batch is odd" in result.stdout
    assert "bad: Failed" in result.stderr
    told = run("explain", "bad").stdout
    assert "Its log says: ValueError: this batch is odd" in told
    assert "The end of the log of rank-0:\n" in told and "  | ValueError: this batch is odd" in told
    listed = json.loads(run("jobs", "--phase", "failed", "--json").stdout)
    assert [job["name"] for job in listed] == ["bad"]


def test_ranks_are_told_apart(run: Run, code: Path) -> None:
    result = run(
        "run", "--code", code, "--boot", "train.py", "--flavor", "ascend.2", "--name", "pair", "--follow"
    )
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert "[rank 0] rank 0 of 2" in lines
    assert "[rank 1] rank 1 of 2" in lines
    assert all(
        line.startswith(("[rank 0] ", "[rank 1] "))
        for line in result.stdout_bytes.decode("latin-1").split("\n")[:-1]
    )
    every = run("logs", "pair", "--all").stdout.splitlines()
    assert sorted(every) == sorted(lines)
    assert "rank 1 of 2" in run("logs", "pair", "--rank", "1").stdout
    assert run("logs", "pair", "--rank", "7").exit_code == 1
    assert json.loads(run("logs", "pair", "--list", "--json").stdout)[0]["stream"] == "rank-0"


def test_dry_run_prints_a_job_file_that_can_be_submitted(run: Run, code: Path, tmp_path: Path) -> None:
    result = run(
        "run",
        "--code",
        code,
        "--boot",
        "train.py",
        "--param",
        "x=1",
        "--secret",
        "KEY=s3cret-value",
        "--dry-run",
    )
    assert result.exit_code == 0, result.output
    assert "s3cret-value" not in result.output
    job, plan = yaml.safe_load_all(result.stdout)
    assert job["parameters"] == {"x": 1}
    assert plan["nodes"][0]["processes"][0]["command"].endswith(" --x=1")
    file = tmp_path / "job.yaml"
    file.write_text(result.stdout.partition("---\n")[0])
    refused = run("submit", file)
    assert refused.exit_code == 1
    assert "KEY" in refused.output
    file.write_text(file.read_text().replace("KEY: null", "KEY: given"))
    accepted = run("submit", file, "--json")
    assert accepted.exit_code == 0, accepted.output
    assert json.loads(accepted.stdout)["spec"]["secrets"] == {"KEY": "**********"}


def test_faults_of_a_job_file_name_their_line(run: Run, code: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"code: {code}\nboot: train.py\nflavour: cpu.1\n")
    result = run("submit", file)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[1] == f"Where: {file}:3:1"
    assert "Did you mean 'flavor'?" in result.stderr
    file.write_text(f"code: {code}\nboot: train.py\nflavor: cpu.512\n")
    assert f"Where: {file}:3:1" in run("submit", file).stderr


def test_control_c_leaves_the_job_alone(run: Run, platform: Any, code: Path) -> None:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "trainshed.cli.main", "--home", str(platform.home.path), "run"),
            *(
                "--code",
                str(code),
                "--boot",
                "train.py",
                "--param",
                "sleep=yes",
                "--name",
                "long",
                "--follow",
            ),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith("TRAINSHED_")},
        # Where the tests themselves run in the background, an interrupt would be ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None and process.stderr is not None
    with process:
        for line in process.stdout:
            if line == b"sleeping\n":
                break
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read().decode()
        assert process.wait(90) == 130
    assert "trainshed logs long -f" in errors
    assert "trainshed stop long" in errors
    assert "Traceback" not in errors
    assert json.loads(run("show", "long", "--json").stdout)["phase"] == "Running"
    stopped = run("stop", "long", "--reason", "enough", "--wait")
    assert stopped.stdout == "Job long is Terminated.\n"
    assert "enough" in run("show", "long").stdout


def test_rerun_and_delete(run: Run, code: Path) -> None:
    assert run("run", "--code", code, "--boot", "train.py", "--name", "first", "-f").exit_code == 0
    again = run("rerun", "first", "--name", "second", "--follow")
    assert again.exit_code == 0, again.output
    assert again.stdout_bytes == run("logs", "first", "--rank", "0").stdout_bytes
    assert run("delete", "first", "second").exit_code == 0
    gone = run("show", "first")
    assert gone.exit_code == 1
    assert "There is no job 'first'." in gone.stderr


def test_tables_fit_80_columns(run: Run, code: Path) -> None:
    run("run", "--code", code, "--boot", "train.py", "--name", "n" * 64)
    for command in (["jobs"], ["flavors"], ["engines"], ["nodes"], ["token", "list"], ["user", "list"]):
        result = run(*command)
        assert result.exit_code == 0, result.output
        assert max(map(len, result.stdout.splitlines())) <= 80, command
        assert json.loads(run(*command, "--json").stdout)


def test_access_commands(run: Run, platform: Any, tmp_path: Path) -> None:
    assert "admin (administrator)" in run("whoami").stdout
    secret = run("token", "create", "ci", "--scope", "jobs:read", "--days", "1").stdout.strip()
    connected = CliRunner().invoke(
        cli, ["--home", str(tmp_path), "login", platform.url, "--token", secret], env={"TRAINSHED_HOME": None}
    )
    assert connected.exit_code == 0, connected.output
    assert secret not in connected.output
    saved = json.loads((tmp_path / "client.json").read_text())
    assert saved == {"url": platform.url, "obs_url": platform.obs_url, "token": secret}
    refused = CliRunner().invoke(cli, ["--home", str(tmp_path), "stop", "good"], env={"TRAINSHED_HOME": None})
    assert refused.exit_code == 1
    assert run("token", "revoke", "ci").exit_code == 0
    late = CliRunner().invoke(cli, ["--home", str(tmp_path), "jobs"], env={"TRAINSHED_HOME": None})
    assert late.exit_code == 1
    assert "trainshed login" in late.stderr
    wrong = CliRunner().invoke(cli, ["--home", str(tmp_path), "login", platform.url, "--token", "tsh_wrong"])
    assert wrong.exit_code == 1
    assert json.loads((tmp_path / "client.json").read_text()) == saved
    env = run("credentials", "--format", "env").stdout
    assert f"export TRAINSHED_URL={platform.url}" in env
    assert json.loads(run("credentials", "--format", "json").stdout)["token"] == platform.token
    assert run("user", "add", "ann", "--password", "a-long-enough-one").exit_code == 0
    assert run("workspace", "member", "default", "ann", "--role", "viewer").exit_code == 0
    assert "ann" in run("workspace", "members", "default").stdout
    assert run("login-link", "ann").stdout.startswith(platform.url)


def test_platform_that_is_down_is_explained() -> None:
    result = CliRunner().invoke(
        cli, ["jobs"], env={"TRAINSHED_URL": "http://127.0.0.1:9", "TRAINSHED_TOKEN": "tsh_x"}
    )
    assert result.exit_code == 1
    assert "does not answer" in result.stderr


LAUNCHER = """
import os, pathlib, sys
pathlib.Path("log").mkdir()
pathlib.Path("log/workerlog.0").write_text("waiting for rank 1\\n")
pathlib.Path("log/workerlog.1").write_text(
    'Traceback (most recent call last):\\n  File "/job/code/worker.py", line 7, in <module>\\n'
    "    import no_such_library\\nModuleNotFoundError: No module named 'no_such_library'\\n"
)
pathlib.Path("notes").mkdir()
pathlib.Path("notes/epoch-1.txt").write_text("best so far")
print("LAUNCH INFO Exit code 1", flush=True)
sys.exit(1)
"""


def test_a_launchers_files_are_logs_and_tell_the_reason_and_other_files_are_kept(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "launch.py").write_text(LAUNCHER)
    result = run("run", "--code", tmp_path / "code", "--boot", "launch.py", "--name", "launched", "-f")
    assert result.exit_code == 1
    told = json.loads(run("explain", "launched", "--json").stdout)
    assert told["answer"]["reason"] == "missing_module" and told["stream"] == "workerlog.1"
    assert told["answer"]["place"] == "/job/code/worker.py:7"
    assert told["last_lines"][-1] == "ModuleNotFoundError: No module named 'no_such_library'"
    listed = run("logs", "launched", "--list").stdout.split()
    assert "workerlog.0" in listed and "workerlog.1" in listed
    assert run("logs", "launched", "--stream", "workerlog.0").stdout == "waiting for rank 1\n"
    assert "no log 'workerlog.7'" in run("logs", "launched", "--stream", "workerlog.7").stderr
    assert "waiting for rank 1" not in run("logs", "launched").stdout
    files = json.loads(run("files", "launched", "--json").stdout)
    assert [(file["path"], file["size"]) for file in files] == [("job/code/notes/epoch-1.txt", 11)]
    assert "1 file, 11 B: `trainshed files launched`" in run("show", "launched").stdout
    assert run("files", "launched", "job/code/notes", "--to", tmp_path / "home").exit_code == 0
    assert (tmp_path / "home/job/code/notes/epoch-1.txt").read_text() == "best so far"
    assert "left no such file" in run("files", "launched", "other").stderr


RESUMING = """
import os, pathlib, time
folder = pathlib.Path(os.environ["TRAINSHED_CHECKPOINT"])
last = folder / "last.txt"
print("attempt", os.environ["TRAINSHED_ATTEMPT"], "finds", last.read_text() if last.exists() else "nothing", flush=True)
last.write_text("epoch 3")
if os.environ["TRAINSHED_ATTEMPT"] == "1":
    print("step: 1, loss: 0.5", flush=True)
    time.sleep(5)
    print("waiting", flush=True)
    time.sleep(120)
"""


def test_checkpoints_are_there_again_after_the_runner_was_killed(
    run: Run, platform: Any, tmp_path: Path, support: Any
) -> None:
    (tmp_path / "train.py").write_text(RESUMING)
    run("run", "--code", tmp_path, "--boot", "train.py", "--name", "resumes", "--restarts", "1")
    job = json.loads(run("show", "resumes", "--json").stdout)
    folder = platform.home.run_folder(job["id"], 1, 0)
    support.wait_until(lambda: folder.rank_log(0).exists() and "waiting" in folder.rank_log(0).read_text())
    os.kill(json.loads(folder.status.read_text())["pid"], signal.SIGKILL)
    assert run("logs", "resumes", "-f", "--rank", "0").exit_code == 0
    support.wait_until(lambda: json.loads(run("show", "resumes", "--json").stdout)["phase"] == "Completed")
    assert run("logs", "resumes", "--rank", "0", "--attempt", "2").stdout == "attempt 2 finds epoch 3\n"
    shown = run("show", "resumes").stdout
    assert "1: runner_lost after" in shown and "2: completed after" in shown
    assert '"loss"' in run("metrics", "resumes", "--attempt", "1", "--json").stdout
    assert "no metrics yet" in run("metrics", "resumes").output


def test_a_job_that_hangs_fails_and_says_who_fell_silent(run: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time\nprint('hello', flush=True)\ntime.sleep(120)\n")
    spec = {"name": "hangs", "code": str(tmp_path), "boot": "train.py", "hang_after": 8, "grace": 1}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(spec))
    result = run("submit", tmp_path / "job.yaml", "--follow")
    assert result.exit_code == 1 and "hangs: Failed" in result.stderr
    told = json.loads(run("explain", "hangs", "--json").stdout)
    assert (told["answer"]["code"], told["answer"]["rank"]) == ("hang", 0)
    assert "rank 0 was last heard" in told["summary"] and told["last_lines"] == ["hello"]


PEERS = """
import os, socket, sys, time, traceback
path = "/job/run/peers.sock"
if os.environ["RANK"] == "1":
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    peer, _ = server.accept()
    try:
        {"lr": 0.1}["momentum"]
    except KeyError:
        # As frameworks do it: the error is printed, the connections fall, the process ends a while later.
        traceback.print_exc()
    sys.stderr.flush()
    peer.close()
    time.sleep(60)
while True:
    peer = socket.socket(socket.AF_UNIX)
    try:
        peer.connect(path)
        break
    except OSError:
        time.sleep(0.05)
if not peer.recv(1):
    raise ConnectionResetError("Connection reset by peer")
"""


def test_the_rank_that_failed_is_named_and_not_the_one_that_noticed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PEERS)
    run("run", "--code", tmp_path, "--boot", "train.py", "--flavor", "ascend.2", "--name", "peers", "-f")
    told = json.loads(run("explain", "peers", "--json").stdout)
    assert (told["answer"]["rank"], told["answer"]["line"]) == (1, "KeyError: 'momentum'")
    assert told["answer"]["place"].endswith("/train.py:10") and "Failed after it: rank 0." in told["facts"]
