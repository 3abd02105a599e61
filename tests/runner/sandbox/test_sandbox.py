"""What the runner relies on: exits, signals, logs, stops, leftovers."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from trainshed.runner.sandbox.inside.processes import find_descendants

PYTHON = os.path.realpath(sys.executable)


def find_processes(marker: str) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if marker.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                    found.append(int(name))
            except OSError:
                continue
    return found


def wait_until_gone(marker: str, seconds: float = 60) -> list[int]:
    deadline = time.monotonic() + seconds
    while (left := find_processes(marker)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def test_success_is_reported_and_the_log_is_whole(host: Any) -> None:
    answer, log = host.run("import sys; print('out'); print('err', file=sys.stderr)")
    assert sorted(log.splitlines()) == ["err", "out"]
    assert answer["exits"]["0"] == {
        **answer["exits"]["0"],
        "exit_code": 0,
        "signal": 0,
        "ended_by_platform": False,
    }
    assert [name for name, _ in answer["events"]] == ["RankStarted", "RankExit", "SandboxEnded"]
    assert answer["message"] == "" and answer["kind"] == "bubblewrap" and not answer["out_of_memory"]
    assert answer["stage_left"] == []


def test_usage_counts_the_job_s_own_work(host: Any) -> None:
    answer, _ = host.run(
        """
        import time
        block = b"x" * 80_000_000
        while time.process_time() < 0.6: pass
        """
    )
    assert 0.5 < answer["usage"]["cpu_seconds"] < 5
    assert answer["usage"]["peak_memory_bytes"] > 75_000_000


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [
        ("raise SystemExit(3)", 3, 0),
        ("import os; os.kill(os.getpid(), 9)", 137, 9),
        ("import os; os.kill(os.getpid(), 11)", 139, 11),
        ("import os, signal; signal.signal(13, signal.SIG_DFL); os.kill(os.getpid(), 13)", 141, 13),
        ("import ctypes; ctypes.string_at(0)", 139, 11),
    ],
)
def test_exit_codes_and_signals(host: Any, script: str, code: int, number: int) -> None:
    answer, _ = host.run(script)
    found = answer["exits"]["0"]
    assert (found["exit_code"], found["signal"], found["ended_by_platform"]) == (code, number, False)
    assert not answer["out_of_memory"]


def test_broken_pipes_end_programs_as_in_a_shell(host: Any) -> None:
    _, log = host.run(arguments=["bash", "-c", "yes | head -1; echo ${PIPESTATUS[0]}"])
    assert log.split() == ["y", "141"]


def test_what_cannot_start_ends_like_in_a_shell(host: Any) -> None:
    for number, (process, code, words) in enumerate(
        [
            ({"arguments": ["no-such-program"]}, 127, "no-such-program: command not found"),
            ({"arguments": ["/no/such/program"]}, 127, "/no/such/program: No such file"),
            ({"arguments": ["/etc/passwd"]}, 126, "/etc/passwd: Permission denied"),
            ({"arguments": ["true"], "directory": "/no/such/folder"}, 127, "/no/such/folder: No such file"),
        ]
    ):
        answer, log = host.run(processes=[process], run=f"node-{number}")
        assert answer["exits"]["0"]["exit_code"] == code
        assert words in log


def test_eight_ranks_lose_no_byte(host: Any) -> None:
    script = """
        import os, random
        generator = random.Random({rank})
        data = generator.randbytes(5_000_000)
        position = 0
        while position < len(data):
            step = generator.choice([1, 100, 4096, 70_000])
            position += os.write(1, data[position:position + step])
        """
    running = host.start(*[script.format(rank=rank) for rank in range(8)])
    answer = running.finish()
    assert {found["exit_code"] for found in answer["exits"].values()} == {0} and len(answer["exits"]) == 8
    import random

    for rank in range(8):
        data = (running.folder / "logs" / f"rank-{rank}.log").read_bytes()
        expected = random.Random(rank).randbytes(5_000_000)
        assert hashlib.sha256(data).digest() == hashlib.sha256(expected).digest()


def test_one_rank_s_failure_ends_the_others(host: Any) -> None:
    answer, log = host.run(
        """
        import signal, sys, time
        def leave(*_):
            print("asked to end", flush=True)
            sys.exit(5)
        signal.signal(signal.SIGTERM, leave)
        print("waiting", flush=True)
        time.sleep(60)
        """,
        "import time; time.sleep(0.5); raise SystemExit(4)",
    )
    assert "asked to end" in log
    first, second = answer["exits"]["0"], answer["exits"]["1"]
    assert (second["exit_code"], second["ended_by_platform"]) == (4, False)
    assert (first["exit_code"], first["ended_by_platform"]) == (5, True)


def test_strange_words_arrive_unchanged(host: Any) -> None:
    words = ["空 格", "new\nline", "", "quote\"'$(x)", "\udcff", "--", "x" * 100_000]
    tree = host.make_folder("tree, with:strange\\ 名字")
    host.write(tree / "file", "content")
    process = {
        "arguments": [
            PYTHON,
            "-c",
            "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['W'], os.getcwd()]))",
            *words,
        ],
        "variables": {"W": words[0]},
        "directory": "/数据",
    }
    answer, log = host.run(processes=[process], overlays=[[str(tree), "/数据"]], run="node, a:b\\c")
    assert answer["exits"]["0"]["exit_code"] == 0, log
    assert json.loads(log) == [words, words[0], "/数据"]


def test_what_no_kernel_accepts_is_refused_with_a_line(host: Any) -> None:
    for number, words in enumerate((["x\0y"], ["x" * 200_000])):
        answer, log = host.run(processes=[{"arguments": ["/bin/true", *words]}], run=f"node-{number}")
        assert answer["exits"]["0"]["exit_code"] == 126 and log.startswith("trainshed: /bin/true: "), log


def test_a_rank_that_succeeds_does_not_end_the_others(host: Any) -> None:
    answer, _ = host.run("pass", "import time; time.sleep(0.5); print('done')")
    assert [answer["exits"][rank]["exit_code"] for rank in ("0", "1")] == [0, 0]
    assert not answer["exits"]["1"]["ended_by_platform"]


def test_stop_asks_first_and_insists_after_the_grace(host: Any) -> None:
    answer, log = host.run(
        """
        import signal, time
        signal.signal(signal.SIGTERM, lambda *_: print("term", flush=True))
        print("ready", flush=True)
        while True: time.sleep(0.1)
        """,
        stop={"line": "ready", "grace": 3},
    )
    assert log.split() == ["ready", "term"]
    found = answer["exits"]["0"]
    assert (found["signal"], found["ended_by_platform"]) == (signal.SIGKILL, True)
    assert not answer["out_of_memory"] and answer["message"] == ""


def test_signals_that_the_runner_ignores_work_in_the_job(host: Any) -> None:
    answer, log = host.run(
        """
        import os, signal, time
        print(int(signal.getsignal(15)), int(signal.getsignal(10)), signal.pthread_sigmask(0, []))
        print("ready", flush=True)
        time.sleep(60)
        """,
        ignored=[signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP],
        blocked=[signal.SIGTERM, signal.SIGUSR2],
        stop={"line": "ready", "grace": 20},
    )
    assert answer["exits"]["0"]["signal"] == signal.SIGTERM
    assert log.startswith("0 0 set()")  # SIG_DFL, SIG_DFL, nothing blocked


def test_stop_reaches_the_children_of_a_rank(host: Any) -> None:
    answer, log = host.run(
        arguments=[
            "bash",
            "-c",
            "bash -c 'trap \"echo child; exit 0\" TERM; echo ready; sleep 60 & wait' ; echo after",
        ],
        stop={"line": "ready", "grace": 20},
    )
    assert "child" in log
    assert answer["exits"]["0"]["ended_by_platform"]


def test_children_of_a_shell_that_died_have_the_rest_of_the_grace(host: Any) -> None:
    script = "bash -c 'trap \"sleep 1; echo saved; exit 0\" TERM; echo ready; sleep 60 & wait' ; echo after"
    answer, log = host.run(arguments=["bash", "-c", script], stop={"line": "ready", "grace": 20})
    assert "saved" in log.split() and "after" not in log
    assert (answer["exits"]["0"]["exit_code"], answer["exits"]["0"]["signal"]) == (128 + 15, 15)


def test_children_that_do_not_end_are_killed_after_the_grace(host: Any) -> None:
    script = "bash -c 'trap \"echo no\" TERM; echo ready; while true; do sleep 0.1; done' ; echo after"
    answer, log = host.run(arguments=["bash", "-c", script], stop={"line": "ready", "grace": 3})
    assert "no" in log.split() and "after" not in log
    assert answer["exits"]["0"]["ended_by_platform"]


SAVING = """
import signal, sys, time
def save(*_):
    print("asked", flush=True)
    time.sleep(1)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("has_shell", [False, True])
def test_who_signals_every_process_leaves_the_ranks_their_grace(host: Any, has_shell: bool) -> None:
    """As Slurm does: SIGTERM to all that runs on the machine for the job, the sandbox's own processes included."""
    if has_shell:
        # It dies at once; what it runs must not.
        command = f"{os.path.realpath(sys.executable)} -c '{SAVING}'; echo after"
        running = host.start(arguments=["bash", "-c", command], limits={"grace": 40})
    else:
        running = host.start(SAVING, limits={"grace": 40})
    running.wait_for("ready")
    # The children first, and one after the other: the rank may be gone long before the others have heard of it.
    for pid in reversed(find_descendants(running.process.pid)):
        assert pid > 1
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.2)
    answer = running.finish()
    assert running.log().split() == ["ready", "asked", "saved"]
    code = 128 + signal.SIGTERM if has_shell else 0
    assert (answer["exits"]["0"]["exit_code"], answer["exits"]["0"]["ended_by_platform"]) == (code, True)


def test_launchers_of_mpi_that_are_signalled_with_all_do_not_cut_the_grace(host: Any) -> None:
    """Left alone, mpirun kills its processes after two of these waits."""
    python = os.path.realpath(sys.executable)
    script = """
import os, signal, sys, time
def save(*_):
    time.sleep(7)
    open(f"/tmp/saved-{os.getpid()}", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
open(f"/tmp/ready-{os.getpid()}", "w").close()
time.sleep(60)
"""
    # What mpirun passes on of their output is lost now and then: another process looks at their files.
    watch = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for word in ("ready", "saved"):
    while sum(name.startswith(word) for name in os.listdir("/tmp")) < 2:
        time.sleep(0.05)
    print(word, flush=True)
"""
    launcher = ["mpirun", "--mca", "odls_base_sigkill_timeout", "2", "--oversubscribe", "-np", "2"]
    running = host.start(
        processes=[
            {"arguments": [python, "-c", watch]},
            {"arguments": [*launcher, python, "-c", script]},
        ],
        limits={"grace": 40},
    )
    running.wait_for("ready")
    for pid in find_descendants(running.process.pid):
        assert pid > 1
        os.kill(pid, signal.SIGTERM)
    answer = running.finish()
    assert running.log().split() == ["ready", "saved"]
    assert answer["exits"]["1"]["ended_by_platform"]


def test_a_child_in_a_session_of_its_own_is_asked_too(host: Any) -> None:
    child = "bash -c 'trap \"sleep 1; echo saved; exit 0\" TERM; echo ready; sleep 60 & wait'"
    answer, log = host.run(
        arguments=["bash", "-c", f"setsid {child} & wait"], stop={"line": "ready", "grace": 20}
    )
    assert "saved" in log.split()
    assert answer["exits"]["0"]["ended_by_platform"]


def test_kill_ends_at_once(host: Any) -> None:
    answer, log = host.run(
        """
        import signal, time
        signal.signal(signal.SIGTERM, lambda *_: print("term", flush=True))
        print("ready", flush=True)
        time.sleep(60)
        """,
        stop={"line": "ready", "kill": True},
    )
    assert log.split() == ["ready"]
    assert answer["exits"]["0"] == {
        **answer["exits"]["0"],
        "exit_code": 137,
        "signal": 9,
        "ended_by_platform": True,
    }


def test_background_children_end_with_the_job(host: Any) -> None:
    marker = f"marker-{uuid.uuid4().hex}"
    answer, _ = host.run(
        arguments=["bash", "-c", f"setsid bash -c 'sleep 300; : {marker}' & sleep 0.3; exit 0"]
    )
    assert answer["exits"]["0"]["exit_code"] == 0
    assert wait_until_gone(marker) == []


def test_a_killed_runner_leaves_no_process(host: Any) -> None:
    marker = f"marker-{uuid.uuid4().hex}"
    running = host.start(
        arguments=[
            "bash",
            "-c",
            f"trap '' TERM; setsid bash -c 'sleep 300; : {marker}' & echo ready; sleep 300; : {marker}",
        ],
        limits={"grace": 60},
    )
    running.wait_for("ready")
    assert find_processes(marker)
    running.process.kill()
    running.process.communicate()
    assert wait_until_gone(marker) == []


def test_a_killed_bubblewrap_ends_the_job_and_is_told(host: Any) -> None:
    marker = f"marker-{uuid.uuid4().hex}"
    running = host.start(arguments=["bash", "-c", f"echo ready; sleep 300; : {marker}"])
    running.wait_for("ready")
    runner = running.process.pid
    children = Path(f"/proc/{runner}/task/{runner}/children").read_text().split()
    outer = [int(pid) for pid in children if b"bwrap" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(outer) == 1
    os.kill(outer[0], signal.SIGKILL)
    answer = running.finish()
    assert "ended early" in answer["message"]
    assert answer["exits"]["0"]["signal"] == 9 and not answer["exits"]["0"]["ended_by_platform"]
    assert not answer["out_of_memory"]
    assert wait_until_gone(marker) == []


def test_threads_that_are_about_to_end_do_not_hinder(host: Any) -> None:
    answer, log = host.run("print('ran')", threads=0.3)
    assert log == "ran\n" and answer["kind"] == "bubblewrap"


def test_a_killed_runner_s_groups_are_removed(host: Any) -> None:
    from trainshed.runner.sandbox import remove_stale_groups

    running = host.start("print('ready', flush=True); import time; time.sleep(60)")
    running.wait_for("ready")
    mine = f"-{running.process.pid}-"
    assert not [path for path in remove_stale_groups() if mine in path]  # a living runner's are left alone
    running.process.kill()
    running.process.communicate()
    removed = [path for path in remove_stale_groups() if mine in path]
    assert bool(removed) == (host.user == "root")
    left = [path for path in Path("/sys/fs/cgroup").rglob("trainshed-*") if mine in path.name]
    assert left == []


def test_generated_files_and_mounts(host: Any) -> None:
    code, data = host.make_folder("code"), host.make_folder("data")
    host.write(code / "train.py", "print('from code')")
    host.write(data / "set.txt", "numbers")
    answer, log = host.run(
        """
        import os, runpy
        runpy.run_path("/job/code/train.py")
        open("/job/code/new.txt", "w").write("mine")
        print(open("/job/code/table.json").read(), open("/data/set.txt").read(), open("/etc/table").read())
        for path in ("/data/x", "/etc/x", "/usr/x", "/x", "/run/x"):
            try: open(path, "w"); print("wrote", path)
            except OSError: pass
        for path in ("/tmp/x", "/var/tmp/x", "/cache/x", os.environ["HOME"] + "/x", "/dev/shm/x"):
            open(path, "w").write("x")
        print(os.environ["HOME"], os.path.expanduser("~"))
        """,
        overlays=[[str(code), "/job/code"]],
        mounts=[[str(data), "/data", False]],
        files=[["/job/code/table.json", "ranks"], ["/etc/table", "etc"]],
    )
    assert log.splitlines() == ["from code", "ranks numbers etc", "/home/trainshed /home/trainshed"]
    assert answer["exits"]["0"]["exit_code"] == 0
    assert sorted(os.listdir(code)) == ["train.py"]
    assert sorted(os.listdir(host.base / "node-0" / "upper-0")) == ["new.txt", "table.json"]
    assert (host.base / "node-0" / "root" / "cache" / "x").read_text() == "x"


def test_an_overlay_of_files_of_many_owners(host: Any) -> None:
    """A job may change what its platform owns or the world may write, and the tree stays as it was."""
    tree = host.make_folder("tree")
    host.write(tree / "own", "own")
    other = host.write(tree / "other", "other", 0o666)
    if host.user == "root":
        os.chown(other, 12345, 12345)
    answer, log = host.run(
        """
        import os
        for name in ("own", "other"):
            open(f"/tree/{name}", "a").write(" changed")
            print(open(f"/tree/{name}").read())
        os.mkdir("/tree/new"); os.remove("/tree/own")
        """,
        overlays=[[str(tree), "/tree"]],
    )
    assert log.splitlines() == ["own changed", "other changed"], answer
    assert (tree / "own").read_text() == "own" and other.read_text() == "other"


def test_two_sandboxes_in_one_process(host: Any) -> None:
    """An installation and the job itself, one after the other, in one runner."""
    answer, log = host.run("print('second')", before="print('first')")
    assert log == "second\n" and answer["exits"]["0"]["exit_code"] == 0
    assert (host.base / "before" / "logs" / "rank-0.log").read_text() == "first\n"


def test_writable_mounts_are_the_job_s(host: Any) -> None:
    host.make_folder("node-0")
    host.make_folder("node-0/root")
    output = host.make_folder("node-0/root/outputs")
    answer, log = host.run(
        "import os; os.makedirs('/out/a/b'); open('/out/a/b/model', 'w').write('weights'); os.chmod('/out', 0o700)",
        mounts=[[str(output), "/out", True]],
    )
    assert (answer["exits"]["0"]["exit_code"], log) == (0, "")
    assert (output / "a/b/model").read_text() == "weights"


def test_without_bubblewrap_the_job_is_refused(host: Any) -> None:
    answer, _ = host.run("pass", environment={"PATH": "/nonexistent"})
    assert answer["error"]["kind"] == "HostUnfit"
    assert "apt install bubblewrap" in answer["error"]["hint"]


def test_a_sandbox_is_used_where_it_works_even_if_not_demanded(host: Any) -> None:
    answer, log = host.run("import os; print(os.getpid() < 10)", allow_unsandboxed=True)
    assert (answer["kind"], log) == ("bubblewrap", "True\n")


def test_without_a_sandbox_where_allowed(host: Any) -> None:
    marker = f"marker-{uuid.uuid4().hex}"
    running = host.start(
        arguments=[
            "bash",
            "-c",
            f"setsid bash -c 'sleep 300; : {marker}' & echo $SECRET ready; sleep 0.3; exit 7",
        ],
        environment={"PATH": "/nonexistent", "SECRET": "planted"},
        allow_unsandboxed=True,
    )
    answer = running.finish()
    if "error" in answer:  # root's interpreter is out of the job user's reach: refused, never run as root
        assert host.user == "root" and answer["error"]["code"] == "sandbox"
        return
    assert running.log().split() == ["ready"]
    assert answer["kind"] == "none" and answer["exits"]["0"]["exit_code"] == 7
    assert wait_until_gone(marker) == []
