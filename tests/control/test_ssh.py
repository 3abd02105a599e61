"""ssh between the nodes of a job, from the platform's keys to the session."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainshed.model.phase import Phase
from trainshed.model.ssh import KEY_NAMES

SCRIPT = """
import os, pathlib, subprocess, time
node, over = os.environ["TRAINSHED_NODE"], pathlib.Path("/tmp/over")
if node == "0":
    for name in ("node-1", os.environ["MASTER_ADDR"]):
        print(subprocess.check_output(["ssh", name, "hostname; cat ~/.ssh/id_ed25519.pub"], text=True), end="")
    print([name for name in os.environ if "ssh" in name.lower() or "KEY-----" in os.environ[name]], flush=True)
    for name in ("node-1", "node-0"):
        # The node may end before its server has answered.
        subprocess.run(["ssh", name, "touch /tmp/over"], stderr=subprocess.DEVNULL)
while not over.exists():
    time.sleep(0.05)
"""


def test_the_nodes_of_a_job_reach_each_other_by_its_own_keys(station: Any) -> None:
    job_id = station.submit(SCRIPT, nodes=2)
    station.until(lambda: station.run_folder(job_id).launch.exists())
    folder = station.run_folder(job_id)
    plan = folder.launch.read_text()
    assert json.loads(plan)["ssh_port"] > 0
    assert "PRIVATE KEY" not in plan
    assert set(KEY_NAMES) <= set(json.loads(folder.secrets.read_text()))
    job = station.wait(job_id)
    assert job.phase is Phase.COMPLETED, (job.ending, station.log(job_id))
    second, key, first, same, variables = station.log(job_id).decode().splitlines()
    assert (second, first) == (f"{job.name}-1", f"{job.name}-0")
    assert key == same
    assert key.endswith(f"job {job_id}")
    assert variables == "[]"
    assert b"PRIVATE KEY" not in b"".join(
        path.read_bytes() for path in folder.path.parent.rglob("*") if path.is_file()
    )


def test_a_job_of_one_node_has_no_keys_and_listens_nowhere(station: Any) -> None:
    script = "import os; print(os.path.exists(os.path.expanduser('~/.ssh')), len(open('/proc/net/tcp').readlines()))"
    job_id = station.submit(script, network="none")
    assert station.wait(job_id).phase is Phase.COMPLETED
    assert station.log(job_id) == b"False 1\n"


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
# In one write: mpirun mixes those of its processes.
os.write(1, f"{rank.value} {socket.gethostbyname(socket.gethostname())} {total.value}\\n".encode())
mpi.MPI_Finalize()
"""


@pytest.mark.slow
def test_mpirun_needs_nothing_but_the_host_file(station: Any) -> None:
    job_id = station.submit(
        MPI,
        nodes=2,
        command="mpirun --hostfile /job/hostfile -np 2 python train.py && (ssh node-1 touch /tmp/over || true)",
        worker_command="until [ -e /tmp/over ]; do sleep 0.1; done",
    )
    job = station.wait(job_id)
    assert job.phase is Phase.COMPLETED, (job.ending, station.log(job_id))
    lines = station.log(job_id).decode().splitlines()
    assert sorted(lines)[:2] == ["0 127.0.0.2 3", "1 127.0.0.3 3"]
