"""Distributed jobs on a real cluster, as they are written for one machine: host files and ssh, devices, every dialect."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import slurm_yard
from trainshed.model.errors import Unavailable

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
# Says all that a process finds, in one line.
TELL = """
import json, os, sys
def read(path):
    try:
        return open(path).read()
    except OSError:
        return None
tables = {path: read(path) for path in (os.environ.get("RANK_TABLE_FILE", ""), "/job/rank_table/hccl.json")}
print("FOUND " + json.dumps({"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(),
    "hosts": read("/job/hostfile"), "tables": tables, "file": os.path.abspath(__file__),
    "data": sorted(os.listdir(os.environ.get("LOOK_AT", "/")))}), flush=True)
"""
MEET = """
import os, socket, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(place) as server:
        print("met", sorted(server.accept()[0].recv(9).decode() for _ in range(world - 1)), flush=True)
else:
    for _ in range(1200):
        try:
            socket.create_connection(place).send(b"%d" % rank)
            break
        except OSError:
            time.sleep(0.1)
print("rank", rank, "of", world, "on node", os.environ["NODE_RANK"],
      "devices", os.environ.get("ASCEND_RT_VISIBLE_DEVICES"), flush=True)
with open(os.environ["TRAINSHED_INPUT_DATA"] + "/greeting") as source:
    greeting = source.read()
with open(os.environ["TRAINSHED_OUTPUT_OUT"] + f"/rank-{rank}", "w") as file:
    file.write(greeting)
"""
# Adds up over real MPI, in processes that mpirun starts over ssh.
MPI = """
import ctypes, os, socket
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
def symbol(name):
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))
world, rank, total = symbol("ompi_mpi_comm_world"), ctypes.c_int(), ctypes.c_int()
mpi.MPI_Init(None, None)
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mine = ctypes.c_int(rank.value + 1)
mpi.MPI_Allreduce(
    ctypes.byref(mine), ctypes.byref(total), 1, symbol("ompi_mpi_int"), symbol("ompi_mpi_op_sum"), world
)
# In one piece: both ranks write to mpirun's own output.
print(f"rank {rank.value} on {socket.gethostname()} sum {total.value}\\n", end="", flush=True)
mpi.MPI_Finalize()
"""
WAIT = "while [ ! -e /tmp/over ]; do sleep 0.1; done"


@pytest.fixture(scope="module")
def lab(support: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A platform that rehearses on its own machine, and has two pools on a cluster of three nodes."""
    folder = tmp_path_factory.mktemp("frameworks")
    shared = folder / "shared"
    shared.mkdir()
    # The workspace's user has to reach the homes in it.
    for path in (shared, *list(shared.parents)[:3]):
        path.chmod(0o755)
    # A bare Python: what jobs need of packages must come by itself.
    nodes = f"{folder}/nodes"
    pools = slurm_yard.describe_pool("lab", node_folder=nodes, shared_folder=str(shared))
    pools += slurm_yard.describe_pool("bare", "short", node_folder=nodes)
    options = "--rehearse", "ascend:8"
    buckets = "results", "datasets"
    with (
        slurm_yard.open_cluster(memory_mb=8000) as cluster,
        slurm_yard.start_on_cluster(
            support, cluster, folder / "home", pools, *options, buckets=buckets
        ) as platform,
    ):
        (folder / "greeting").write_text("hello")
        sent = platform.cli("obs", "cp", folder / "greeting", "obs://datasets/greeting/greeting")
        assert sent.exit_code == 0, sent.output
        yield platform


def submit(lab: Any, folder: Path, script: str = "", **job: Any) -> None:
    """Submit a job with a script of one file; nothing of it is made for a cluster but its pool."""
    if script:
        (folder / "code").mkdir(exist_ok=True)
        (folder / "code" / "train.py").write_text(script)
        job = {"code": "./code", **job}
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    done = lab.cli("submit", "job.yaml", cwd=folder)
    assert done.exit_code == 0, done.output


def wait_for_end(lab: Any, name: str) -> str:
    """Wait until a job has completed; its whole log."""
    with lab.client() as client:
        # One that hangs has to say where: only its log knows.
        with contextlib.suppress(Unavailable):
            client.wait(name, timeout=150)
        phase = client.get(name).phase
    log = lab.cli("logs", name, "--all").output
    assert phase == "Completed", lab.cli("explain", name).output + log
    return str(log)


def found_by(log: str) -> list[dict[str, Any]]:
    """What the processes said that they found, by rank."""
    found = [json.loads(line.partition("FOUND ")[2]) for line in log.splitlines() if "FOUND " in line]
    return sorted(found, key=lambda each: int(each["env"].get("RANK_ID", each["env"]["RANK"])))


def test_mpirun_reaches_the_other_node_and_users_reach_both(lab: Any, support: Any, tmp_path: Path) -> None:
    submit(
        lab, tmp_path, MPI, name="mpi", pool="lab", nodes=2, worker_command=WAIT,
        command=f"mpirun --hostfile /job/hostfile -np 2 python train.py; {WAIT}",
    )  # fmt: skip

    def log() -> str:
        return str(lab.cli("logs", "mpi").stdout)

    try:
        support.wait_until(lambda: log().count("sum 3") == 2, seconds=150, what="both ranks' sums")
    except AssertionError as fault:
        told = [lab.cli(*words).output for words in (("explain", "mpi"), ("logs", "mpi", "--all"))]
        raise AssertionError("\n".join([str(fault), *told])) from None
    assert "rank 0 on mpi-0" in log() and "rank 1 on mpi-1" in log()
    names = [lab.cli("ssh", "mpi", "--node", str(node), "--", "hostname") for node in (0, 1)]
    assert [name.stdout.strip() for name in names] == ["mpi-0", "mpi-1"], names
    # Many bytes, both ways, byte by byte as they were.
    there = lab.cli("ssh", "mpi", "--node", "1", "--", "head -c 3000000 /dev/zero | wc -c; exit 7")
    assert (there.stdout.strip(), there.exit_code) == ("3000000", 7)
    for node in (0, 1):
        assert lab.cli("ssh", "mpi", "--node", str(node), "--", "touch /tmp/over").exit_code == 0
    wait_for_end(lab, "mpi")
    assert lab.cli("ssh", "mpi", "--", "true").exit_code != 0


def test_the_horovod_example_runs_and_its_home_stays(lab: Any, support: Any, tmp_path: Path) -> None:
    job = yaml.safe_load((EXAMPLES / "apulis-horovod" / "job.yaml").read_text())
    job |= {
        "code": str(EXAMPLES / "apulis-horovod"),
        "pool": "lab",
        "flavor": "nvidia.2",
        "hold": 1,
        "command": job["command"].replace("-np 8", "-np 4"),
    }
    submit(lab, tmp_path, **job)
    log = wait_for_end(lab, "apulis-horovod")
    for rank in range(4):
        assert f"rank {rank} of 4, local rank {rank % 2} on worker-{rank // 2}" in log, log
    submit(
        lab, tmp_path, TELL, name="at-home", dialect="apulis", pool="lab", nodes=2, engine="python",
        command="python /code/train.py", environment={"LOOK_AT": "/home/admin"},
    )  # fmt: skip
    first, second = found_by(wait_for_end(lab, "at-home"))
    for node, found in enumerate((first, second)):
        assert "checkpoints" in found["data"], "the home is the one that the first job filled, on both nodes"
        assert found["env"]["DLWS_ROLE_IDX"] == str(node) and found["env"]["DLWS_NUM_WORKER"] == "2"
        assert found["env"]["HOME"] == "/home/admin"
    submitted = lab.cli("submit", "job.yaml", "--pool", "bare", "--set", "name=nowhere", cwd=tmp_path)
    assert submitted.exit_code != 0 and "shared_folder of [pools.bare]" in submitted.output


@pytest.mark.parametrize(
    ("dialect", "arguments", "variables"),
    [
        (
            "modelarts-v1",
            ["--data_url=s3://datasets/greeting/", "--train_url=s3://results/modelarts-v1/"],
            {"DLS_TASK_NUMBER": "2", "BATCH_JOB_ID": None, "DLS_TASK_INDEX": None},
        ),
        (
            "modelarts-v2",
            ["--data_url=/home/ma-user/modelarts/inputs/data_url_0"],
            {
                "MA_NUM_HOSTS": "2",
                "VC_TASK_INDEX": None,
                "MA_JOB_DIR": "/home/ma-user/modelarts/user-job-dir",
            },
        ),
        ("xihe", ["--data_url="], {"TRAINSHED_NODES": "2"}),
    ],
)
def test_a_dialects_world_is_there_on_a_cluster(
    lab: Any,
    support: Any,
    tmp_path: Path,
    dialect: str,
    arguments: list[str],
    variables: dict[str, str | None],
) -> None:
    submit(
        lab, tmp_path, TELL, name=dialect, dialect=dialect, boot="train.py", pool="lab", nodes=2,
        flavor="ascend.8", processes=1, inputs={"data_url": "obs://datasets/greeting/"},
        outputs={"train_url": f"obs://results/{dialect}/"},
    )  # fmt: skip
    ranks = found_by(wait_for_end(lab, dialect))
    assert len(ranks) == 2
    placed = lab.cli("show", dialect, "--json").json()
    for node, found in enumerate(ranks):
        for argument in arguments:
            assert any(given.startswith(argument) for given in found["argv"]), found["argv"]
        for name, value in variables.items():
            assert name in found["env"] and value in (None, found["env"][name]), (
                name,
                found["env"].get(name),
            )
        assert found["env"]["ASCEND_RT_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
        assert found["env"]["TRAINSHED_NODE"] == str(node)
    assert placed["spec"]["pool"] == "lab"


def test_a_job_sees_the_devices_that_slurm_gave_it(lab: Any, support: Any, tmp_path: Path) -> None:
    submit(
        lab, tmp_path, "", name="first", pool="lab", flavor="ascend.4", ssh=True,
        command="while [ ! -e /tmp/over ]; do sleep 0.1; done",
    )  # fmt: skip
    support.wait_until(
        lambda: lab.cli("ssh", "first", "--", "true").exit_code == 0, seconds=120, what="the first job"
    )
    submit(
        lab,
        tmp_path,
        TELL,
        name="second",
        boot="train.py",
        pool="lab",
        nodes=3,
        flavor="ascend.2",
        processes=1,
    )
    ranks = found_by(wait_for_end(lab, "second"))
    # Whoever ends the job from inside may be cut off before the answer (ssh says 255 then), and waits for nothing.
    told = lab.cli("ssh", "first", "--", "touch /tmp/over; sleep 60")
    assert told.exit_code == 255 and "have ended" in told.stderr, told.output
    wait_for_end(lab, "first")
    assert "on the machines' own network, ports from" in lab.cli("show", "second").stdout
    seen = [found["env"]["ASCEND_RT_VISIBLE_DEVICES"] for found in ranks]
    assert sorted(seen) == ["0,1", "0,1", "4,5"], "one machine's first four are another job's"
    for found in ranks:
        table = json.loads(found["tables"]["/job/rank_table/hccl.json"])
        # In the order of the ranks, with the indices that the processes see.
        servers = [[device["device_id"] for device in each["device"]] for each in table["server_list"]]
        assert servers == [devices.split(",") for devices in seen]


def test_one_job_file_runs_here_in_rehearsal_and_on_slurm(lab: Any, support: Any, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(MEET)
    job = {
        "code": "./code",
        "boot": "train.py",
        "nodes": 2,
        "inputs": {"data": "obs://datasets/greeting/"},
        "outputs": {"out": "obs://results/same/"},
    }
    (tmp_path / "cpu.yaml").write_text(yaml.safe_dump({**job, "flavor": "cpu.1"}))
    (tmp_path / "ascend.yaml").write_text(yaml.safe_dump({**job, "flavor": "ascend.2"}))
    said: dict[tuple[str, str], list[str]] = {}
    for file, pool in (("cpu", "local"), ("cpu", "lab"), ("ascend", "local"), ("ascend", "lab")):
        done = lab.cli("submit", f"{file}.yaml", "--pool", pool, "--json", cwd=tmp_path)
        assert done.exit_code == 0, done.output
        name = done.json()["name"]
        log = wait_for_end(lab, name)
        lines = [line.partition("] ")[2] for line in log.splitlines() if "] met" in line or "] rank " in line]
        said[file, pool] = sorted(lines)
        assert lab.cli("show", name, "--json").json()["rehearsal"] is ((file, pool) == ("ascend", "local"))
    assert said["cpu", "local"] == said["cpu", "lab"]
    assert said["cpu", "lab"][0] == "met ['1']"
    # Slurm gives the first devices of an idle machine, as a rehearsal gives its first two to each node in turn.
    ranks = [[line.split(" devices")[0] for line in said["ascend", pool]] for pool in ("local", "lab")]
    assert ranks[0] == ranks[1] and ranks[0][0] == "met ['1', '2', '3']"
    listed = lab.cli("obs", "ls", "-r", "obs://results/same/").stdout
    assert all(f"rank-{rank}" in listed for rank in range(4))


def test_pools_are_told_apart(lab: Any, tmp_path: Path) -> None:
    flavors = lab.cli("flavors", "--json").json()
    assert flavors[0]["pool"] == "local"
    one = {each["pool"]: each for each in flavors if each["name"] == "ascend.8"}
    assert one["local"]["cpus"] == 0, "a rehearsal reserves no cores"
    assert one["lab"]["cpus"] == 8 and set(one) == {"local", "lab", "bare"}
    assert {node["pool"] for node in lab.cli("nodes", "--pool", "bare", "--json").json()} == {"bare"}
    assert "lab" in lab.cli("flavors").stdout
    (tmp_path / "job.yaml").write_text("command: 'true'\nnodes: 4\nflavor: cpu.8\n")
    shown = lab.cli(
        "submit", "job.yaml", "--pool", "lab", "--set", "nodes=2", "--dry-run", cwd=tmp_path
    ).stdout
    assert (
        "MASTER_ADDR: address-of-node-0" in shown
        and "network: open" in shown
        and "#SBATCH --nodes=2" in shown
    )
    for arguments, words in (
        (("--pool", "lab"), "all machines of the pool 'lab'"),
        (("--pool", "lab", "--set", "nodes=2", "--set", "network=none"), "cannot meet"),
        (("--pool", "lap"), "There is no pool 'lap'"),
    ):
        refused = lab.cli("submit", "job.yaml", *arguments, cwd=tmp_path)
        assert refused.exit_code != 0 and words in refused.output, refused.output
