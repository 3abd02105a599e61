"""ssh between the nodes of a job, from the platform's keys to the session."""

from __future__ import annotations

import json
from typing import Any

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
        subprocess.run(["ssh", name, "touch /tmp/over"], check=True)
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
