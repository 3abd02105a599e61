"""The start of a job's processes: what is helped along, what is left alone, and that nothing of it breaks a script."""

from __future__ import annotations

import socket
import textwrap
import time
from pathlib import Path

import pytest

from job_process import Run, make_environment, runner_of
from trainshed.daemon.preflight import find_free_port


@pytest.fixture(scope="module", params=["", "3.7"], ids=["own", "3.7"])
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment as jobs have it."""
    return make_environment(request.param, tmp_path_factory.mktemp("environment"))


@pytest.fixture
def run(python: Path, tmp_path: Path) -> Run:
    """Run the interpreter as a process of a job, in a folder that holds what `modules` names."""
    return runner_of(python, tmp_path)


def test_a_shell_script_given_to_python_is_run_by_bash(run: Run) -> None:
    script = 'echo "bash: $BASH_VERSION" | cut -c1-5; echo "got $1 and $2"; exit 7\n'
    done = run("-u", "run.sh", "a b", "c", modules={"run.sh": script})
    assert (done.returncode, done.stdout) == (7, "bash:\ngot a b and c\n")
    assert done.stderr == "[trainshed] run.sh is a shell script: bash runs it instead of python\n"


def test_a_python_script_starts_as_always(run: Run) -> None:
    done = run("train.py", "x.sh", modules={"train.py": "import sys; print(sys.argv)", "x.sh": "echo no"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "['train.py', 'x.sh']\n", "")
    assert run("missing.sh").returncode == 2


def test_without_a_hooked_module_only_one_small_module_is_loaded(run: Run) -> None:
    program = "import sys; print([name for name in sys.modules if name.startswith('trainshed')], len(sys.meta_path))"
    done = run("-c", program, TRAINSHED_REHEARSAL="1")
    plain = run("-c", program, TRAINSHED_HOOKS="off", TRAINSHED_REHEARSAL="1")
    assert done.stdout.startswith("['trainshed_start'] ")
    assert int(done.stdout.split()[-1]) == int(plain.stdout.split()[-1]) + 1
    assert done.stderr == plain.stderr == ""


MINDSPORE = {
    "mindspore/__init__.py": "__version__ = '2.10.0'\nfrom mindspore.context import set_context\n",
    "mindspore/context.py": """
        def set_context(**options): print('set', sorted(options.items()))
        def get_context(name): return 'Ascend'
        """,
    "mindspore/communication/__init__.py": "from mindspore.communication.management import init\n",
    "mindspore/communication/management.py": """
        from mindspore import context
        def init(backend_name=None): print('init', backend_name)
        """,
}
SCRIPT = """
import mindspore
from mindspore.communication import init
mindspore.set_context(device_target="Ascend", device_id=3, enable_hccl=True)
init("hccl")
"""


def test_a_rehearsal_maps_devices_and_says_so_once(run: Run) -> None:
    variables = {
        "TRAINSHED_REHEARSAL": "1",
        "TRAINSHED_ENGINE_ASKED": "mindspore_1.7.0-cann",
        "LOCAL_RANK": "0",
    }
    done = run("-c", SCRIPT + SCRIPT, modules=MINDSPORE, **variables)
    assert done.stdout == "set [('device_id', 3), ('device_target', 'CPU')]\ninit mccl\n" * 2
    assert done.stderr.splitlines() == [
        "[trainshed] asked for the engine mindspore_1.7.0-cann; mindspore 2.10.0 runs",
        '[trainshed rehearsal] device_target="Ascend" runs as CPU',
        "[trainshed rehearsal] set_context(enable_hccl=...) has no meaning on a CPU and is left out",
        '[trainshed rehearsal] init("hccl") communicates by mccl, on the CPU',
    ]
    assert run("-c", SCRIPT, **{**variables, "LOCAL_RANK": "1"}).stderr == "", "one rank of a node is enough"


def test_a_process_started_by_the_script_does_not_say_it_again(run: Run) -> None:
    script = (
        SCRIPT
        + "import subprocess, sys\nif len(sys.argv) == 1: subprocess.run([sys.executable, 'train.py', 'child'])\n"
    )
    done = run("train.py", modules={**MINDSPORE, "train.py": script}, TRAINSHED_REHEARSAL="1")
    assert done.stdout.count("init mccl") == 2 and len(done.stderr.splitlines()) == 3


@pytest.mark.parametrize("variables", [{}, {"TRAINSHED_REHEARSAL": "1", "TRAINSHED_HOOKS": "off"}])
def test_outside_a_rehearsal_and_switched_off_nothing_is_mapped(run: Run, variables: dict[str, str]) -> None:
    done = run("-c", SCRIPT, modules=MINDSPORE, **variables)
    assert "('device_target', 'Ascend')" in done.stdout and "init hccl" in done.stdout and not done.stderr


def test_one_part_can_be_switched_off(run: Run) -> None:
    done = run("-c", SCRIPT, modules=MINDSPORE, TRAINSHED_REHEARSAL="1", TRAINSHED_HOOKS="-mindspore")
    assert "init hccl" in done.stdout


def test_a_fault_of_ours_is_one_line_and_the_script_goes_on(run: Run) -> None:
    odd = {
        **MINDSPORE,
        "mindspore/context.py": "",
        "mindspore/__init__.py": "from mindspore import context\n",
    }
    done = run("-c", "import mindspore; print('goes on')", modules=odd, TRAINSHED_REHEARSAL="1")
    assert (done.returncode, done.stdout) == (0, "goes on\n")
    [line] = done.stderr.splitlines()
    assert line.startswith("[trainshed] mindspore.context was not helped along: AttributeError")


def test_a_failing_import_stays_the_scripts_own(run: Run) -> None:
    done = run(
        "-c", "import mindspore", modules={"mindspore/__init__.py": "1 / 0\n"}, TRAINSHED_REHEARSAL="1"
    )
    assert done.returncode == 1 and "ZeroDivisionError" in done.stderr
    done = run("-c", "import torch", TRAINSHED_REHEARSAL="1")
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'torch'"


def test_what_has_no_form_on_a_cpu_is_named(run: Run) -> None:
    program = "try: import npu_bridge\nexcept ImportError as fault: print(fault)"
    done = run("-c", program, TRAINSHED_REHEARSAL="1")
    assert done.stdout == "No module named 'npu_bridge'\n"
    assert "[trainshed rehearsal] the module npu_bridge cannot be mapped" in done.stderr
    assert run("-c", program).stderr == "", "a job on real devices is told nothing"


def test_modules_keep_their_loader_and_source(run: Run) -> None:
    program = """
        import inspect, mindspore.context, sys
        print(type(mindspore.context.__loader__).__name__, 'def set_context' in inspect.getsource(mindspore.context))
        """
    done = run("-c", textwrap.dedent(program), modules=MINDSPORE, TRAINSHED_REHEARSAL="1")
    assert done.stdout == "SourceFileLoader True\n", done.stderr


@pytest.mark.parametrize(
    ("given", "passed_on"),
    [
        # Guide's call on several nodes: its hosts come with ports.
        (
            "--cluster_node_ips=10.0.0.1:7000,10.0.0.2:7000 --node_ip=10.0.0.2 --started_port=7000 "
            "--selected_gpus=0,1,2,3,4,5,6,7 train.py --ips x",
            "--master=10.0.0.1:7000 --nnodes=2 --rank=1 --nproc_per_node=8 --devices=0,1,2,3,4,5,6,7 train.py --ips x",
        ),
        (
            "--selected_gpus=0,1 --log_dir mylog train.py",
            "--nproc_per_node=2 --devices=0,1 --log_dir=mylog train.py",
        ),
        ("--selected_gpus 0 train.py", "--nproc_per_node=1 --devices=0 train.py"),
        ("--ips=10.0.0.1,10.0.0.2 t.py", "--master=10.0.0.1:6170 --nnodes=2 --rank=0 t.py"),
        ("--nproc_per_node 4 --selected_gpus=0,1 t.py", "--devices=0,1 --nproc_per_node=4 t.py"),
        # Today's own options are left as they are, one node has no master, and flags of the script are its own.
        (
            "--devices=0,1 --master=a:1 train.py --selected_gpus=3",
            "--devices=0,1 --master=a:1 train.py --selected_gpus=3",
        ),
        ("--cluster_node_ips=10.0.0.1 --node_ip=10.0.0.1 t.py", "t.py"),
        ("--use_paddlecloud t.py", "t.py"),
        ("", ""),
    ],
)
def test_old_options_of_paddles_launcher_are_rewritten(run: Run, given: str, passed_on: str) -> None:
    launcher = {
        "paddle/__init__.py": "",
        "paddle/distributed/__init__.py": "",
        "paddle/distributed/launch/__init__.py": "",
        "paddle/distributed/launch/__main__.py": "import sys; print(' '.join(sys.argv[1:]))",
    }
    done = run("-m", "paddle.distributed.launch", *given.split(), modules=launcher)
    assert (done.returncode, done.stdout) == (0, passed_on + "\n"), done.stderr
    changed = given.replace("--log_dir mylog", "--log_dir=mylog") != passed_on
    assert done.stderr.count("[trainshed] options of an early paddle.distributed.launch") == changed


def test_in_a_rehearsal_paddles_launcher_is_given_processes_without_devices(run: Run) -> None:
    launcher = {
        "paddle/__init__.py": "",
        "paddle/distributed/__init__.py": "",
        "paddle/distributed/launch/__init__.py": "",
        "paddle/distributed/launch/__main__.py": "import sys; print(' '.join(sys.argv[1:]))",
    }
    variables = {"TRAINSHED_REHEARSAL": "1", "PADDLE_MASTER": "127.0.0.2:29402", "TRAINSHED_NODE": "1"}
    flags = "--cluster_node_ips=a:1,b:1 --selected_gpus=0,1 t.py"
    done = run(
        "-m",
        "paddle.distributed.launch",
        *flags.split(),
        modules=launcher,
        TRAINSHED_HOOKS="-paddle",
        **variables,
    )
    assert done.stdout == "--master=127.0.0.2:29402 --nnodes=2 --rank=1 --nproc_per_node=2 t.py\n", (
        done.stderr
    )


SCHEDULED = {
    **MINDSPORE,
    "mindspore/_c_expression.py": """
        import os, socket, time
        def init_cluster():
            listener = socket.socket()
            listener.bind((os.environ["MS_SCHED_HOST"], int(os.environ["MS_SCHED_PORT"])))
            listener.listen(9)
            print("serving", os.environ["MS_ROLE"], os.environ["MS_WORKER_NUM"], "MS_NODE_ID" in os.environ, flush=True)
            held = [listener.accept() for _ in range(9)]
        """,
    "mindspore/communication/management.py": """
        import os, socket, time
        from mindspore import context
        def init(backend_name=None):
            for _ in range(200):
                try:
                    global held
                    held = socket.create_connection((os.environ["MS_SCHED_HOST"], int(os.environ["MS_SCHED_PORT"])))
                    break
                except OSError:
                    time.sleep(0.05)
            print(*(os.environ[n] for n in ("MS_ROLE", "MS_NODE_ID", "MS_WORKER_NUM")), bool(held), flush=True)
        """,
}
JOIN = "from mindspore.communication import init; init()"


def free_port() -> int:
    # Not one that an outgoing connection may happen to get before it is used.
    return find_free_port("127.0.0.1")


def is_served(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(
    "given",
    [
        {"RANK_ID": "0", "RANK_SIZE": "2"},
        {"MS_ROLE": "MS_WORKER", "MS_NODE_ID": "0", "MS_WORKER_NUM": "2", "MS_SCHED_HOST": "127.0.0.1"},
    ],
    ids=["ranks", "variables"],
)
def test_rank_0_brings_mindspores_scheduler_which_ends_with_it(
    run: Run, tmp_path: Path, given: dict[str, str]
) -> None:
    port = free_port()
    given = {**given, "TRAINSHED_REHEARSAL": "1", "TRAINSHED_MS_SCHED": f"127.0.0.1:{port}"}
    if "MS_ROLE" in given:
        given["MS_SCHED_PORT"] = str(port)
    done = run("-c", JOIN, modules=SCHEDULED, **given)
    assert (done.returncode, done.stdout) == (0, "MS_WORKER 0 2 True\n"), done.stderr
    assert (tmp_path / "mindspore_scheduler.log").read_text() == "serving MS_SCHED 2 False\n"
    deadline = time.monotonic() + 90
    while is_served(port):
        assert time.monotonic() < deadline, "the scheduler outlives its ranks"
        time.sleep(0.1)


def test_a_scheduler_that_is_there_and_other_launchers_are_left_alone(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        meeting = {"TRAINSHED_REHEARSAL": "1", "TRAINSHED_MS_SCHED": f"127.0.0.1:{port}"}
        done = run("-c", JOIN, modules=SCHEDULED, RANK_ID="0", RANK_SIZE="1", **meeting)
        assert done.stdout == "MS_WORKER 0 1 True\n", done.stderr
        msrun = {
            "MS_ROLE": "MS_WORKER",
            "MS_NODE_ID": "0",
            "MS_WORKER_NUM": "4",
            "MS_SCHED_HOST": "127.0.0.1",
        }
        elsewhere = {"TRAINSHED_MS_SCHED": "127.0.0.1:9", "MS_SCHED_PORT": port, "TRAINSHED_REHEARSAL": "1"}
        done = run("-c", JOIN, RANK_ID="0", RANK_SIZE="1", **msrun, **elsewhere)
        assert done.stdout == "MS_WORKER 0 4 True\n", done.stderr
    assert not (tmp_path / "mindspore_scheduler.log").exists()


def test_ranks_that_are_numbered_from_0_on_every_node_are_put_right(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        meeting = {"TRAINSHED_REHEARSAL": "1", "TRAINSHED_MS_SCHED": f"127.0.0.1:{listener.getsockname()[1]}"}
        ranks = {
            "RANK_ID": "0",
            "RANK_SIZE": "16",
            "DEVICE_ID": "0",
            "TRAINSHED_NODE": "1",
            "TRAINSHED_NODES": "2",
        }
        done = run("-c", JOIN, modules=SCHEDULED, **ranks, **meeting)
    assert done.stdout == "MS_WORKER 8 16 True\n"
    assert (
        "RANK_ID=0 on node 1 is a rank of node 0" in done.stderr
        and "export RANK_ID=$((node * 8 + i))" in done.stderr
    )


def test_rank_0_stays_while_another_rank_needs_the_scheduler(run: Run, tmp_path: Path) -> None:
    port = free_port()
    other = (
        f"import socket, sys, time; held = socket.create_connection(('127.0.0.1', {port})); print(flush=True); "
        "time.sleep(2); open('left', 'w').close()"
    )
    script = f"""
{JOIN}
import subprocess, sys
other = subprocess.Popen([sys.executable, "-c", {other!r}], stdout=subprocess.PIPE)
other.stdout.readline()
"""
    meeting = {"TRAINSHED_REHEARSAL": "1", "TRAINSHED_MS_SCHED": f"127.0.0.1:{port}"}
    done = run("-c", script, modules=SCHEDULED, RANK_ID="0", RANK_SIZE="2", **meeting)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "left").exists()


@pytest.mark.parametrize(
    ("end", "code"),
    [("raise ValueError('no')", 1), ("sys.exit(3)", 3), ("os._exit(4)", 4)],
    ids=["raise", "exit", "_exit"],
)
def test_a_rank_0_that_fails_waits_for_nobody(run: Run, end: str, code: int) -> None:
    port = free_port()
    # Another connection, as of a rank that still works.
    script = f"{JOIN}\nimport os, socket, sys\nother = socket.create_connection(('127.0.0.1', {port}))\n{end}"
    meeting = {"TRAINSHED_REHEARSAL": "1", "TRAINSHED_MS_SCHED": f"127.0.0.1:{port}"}
    done = run("-c", script, modules=SCHEDULED, RANK_ID="0", RANK_SIZE="2", **meeting)
    assert done.returncode == code
